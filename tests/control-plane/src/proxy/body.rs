//! The body of an answer on its way to the client: watched, and perhaps cut short.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use kube::client::Body as KubeBody;

use super::record::Running;

/// How much of a body passes, and what comes then.
#[derive(Debug)]
pub(super) struct Limit {
    bytes_left: usize,
    then: Then,
}

#[derive(Clone, Copy, Debug)]
enum Then {
    Cut { is_flushed: bool },
    Stall,
}

impl Limit {
    pub(super) fn cut(bytes: usize) -> Self {
        Self { bytes_left: bytes, then: Then::Cut { is_flushed: false } }
    }

    pub(super) fn stall(bytes: usize) -> Self {
        Self { bytes_left: bytes, then: Then::Stall }
    }
}

/// The request counts as running until this body has ended or was dropped.
pub(super) struct AnswerBody {
    inner: KubeBody,
    _running: Running,
    limit: Option<Limit>,
}

impl AnswerBody {
    pub(super) fn new(inner: KubeBody, running: Running, limit: Option<Limit>) -> Self {
        Self { inner, _running: running, limit }
    }
}

/// Why a body ends early.
#[derive(Debug, thiserror::Error)]
pub(super) enum BodyError {
    #[error("cut by the proxy")]
    Cut,
    #[error("upstream: {0}")]
    Upstream(#[from] kube::Error),
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match &mut self.limit {
            Some(Limit { bytes_left: 0, then: Then::Cut { is_flushed: true } }) => {
                return Poll::Ready(Some(Err(BodyError::Cut)));
            }
            // An error throws away what is not written yet; a pause makes the connection write it.
            Some(Limit { bytes_left: 0, then: Then::Cut { is_flushed } }) => {
                *is_flushed = true;
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            // Nobody wakes it; it ends when the client gives up and the connection drops it.
            Some(Limit { bytes_left: 0, then: Then::Stall }) => return Poll::Pending,
            _ => {}
        }
        let Some(frame) = ready!(Pin::new(&mut self.inner).poll_frame(context)) else { return Poll::Ready(None) };
        let frame = frame?;
        let Some(limit) = &mut self.limit else { return Poll::Ready(Some(Ok(frame))) };
        Poll::Ready(Some(Ok(frame.map_data(|mut data| {
            data.truncate(limit.bytes_left);
            limit.bytes_left -= data.len();
            data
        }))))
    }

    fn is_end_stream(&self) -> bool {
        self.limit.is_none() && self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
