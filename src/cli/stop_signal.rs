//! How the process is asked to end. The only file that knows what system it runs on.

use std::io;

/// Waits until the process is asked to end: by SIGTERM, as the kubelet does, or by SIGINT.
#[cfg(unix)]
pub(super) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    Ok(async move {
        tokio::select! {
            biased;
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}

/// Waits until the process is asked to end: as containers of Windows are when their pod is stopped, or by Ctrl-C
/// (<https://learn.microsoft.com/windows/console/handlerroutine>).
#[cfg(windows)]
pub(super) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::windows::{ctrl_c, ctrl_close, ctrl_shutdown};

    let (mut interrupt, mut close, mut shutdown) = (ctrl_c()?, ctrl_close()?, ctrl_shutdown()?);
    Ok(async move {
        tokio::select! {
            biased;
            _ = shutdown.recv() => {}
            _ = close.recv() => {}
            _ = interrupt.recv() => {}
        }
    })
}
