//! Whether this process shares the network of its host.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};

use super::node::UNREAD;
use super::{Check, Topic};
use crate::cluster::surroundings::NodeDetails;

/// Whether an address is one of this network's own: what is sent to one's own address leaves from it. Nothing is sent; a
/// UDP socket that is connected only chooses where it would send from.
pub(super) fn is_own(address: IpAddr) -> io::Result<bool> {
    let any: IpAddr = match address {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0))?;
    match socket.connect((address, 9)) {
        Ok(()) => Ok(socket.local_addr()?.ip() == address),
        // There is always a way to an own address.
        Err(error) if matches!(error.kind(), ErrorKind::NetworkUnreachable | ErrorKind::HostUnreachable) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Whether an address of the Node is an own one of this process.
pub(super) fn is_shared(
    details: Option<&NodeDetails>,
    is_own: impl Fn(IpAddr) -> io::Result<bool>,
    is_azure_reached: bool,
) -> Check {
    const TOPIC: Topic = Topic::HostNetwork;
    let Some(details) = details else { return Check::skip(TOPIC, UNREAD) };
    let addresses = &details.internal_addresses;
    if addresses.is_empty() {
        return Check::skip(TOPIC, "the Node tells no InternalIP to compare with");
    }
    let mut strange = Vec::new();
    for address in addresses {
        match is_own(*address) {
            Ok(true) => return Check::ok(TOPIC, format!("the Node's address {address} is this process's own")),
            Ok(false) => strange.push(address.to_string()),
            Err(error) => return Check::skip(TOPIC, format!("it cannot be told whose {address} is: {error}")),
        }
    }
    let found = format!("the Node's address {} is not this process's own", strange.join(", "));
    let advice = "run on the node itself, in a pod with `hostNetwork: true`";
    if is_azure_reached {
        let advice = format!("{advice}: with AKS's IMDS restriction other pods do not reach the metadata service");
        return Check::warn(TOPIC, found, advice);
    }
    Check::fail(TOPIC, found, advice)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Verdict;

    #[test]
    fn the_loopback_address_is_an_own_one_and_one_for_documentation_is_not() {
        assert!(is_own(Ipv4Addr::LOCALHOST.into()).unwrap());
        // 192.0.2.0/24 belongs to nobody (RFC 5737).
        assert!(!is_own(Ipv4Addr::new(192, 0, 2, 1).into()).unwrap());
    }

    #[test]
    fn one_own_address_is_enough_and_none_is_worse_without_azure() {
        let details = |addresses: &[[u8; 4]]| {
            let internal_addresses = addresses.iter().map(|address| IpAddr::from(*address)).collect();
            NodeDetails { internal_addresses, ..NodeDetails::default() }
        };
        let own = |address: IpAddr| match address.to_string().as_str() {
            "10.0.0.1" => Ok(true),
            "10.0.0.9" => Err(io::Error::from(ErrorKind::PermissionDenied)),
            _ => Ok(false),
        };
        let check = |addresses: &[[u8; 4]], azure| is_shared(Some(&details(addresses)), own, azure).verdict;
        assert_eq!(check(&[[10, 0, 0, 2], [10, 0, 0, 1]], true), Verdict::Ok);
        assert_eq!(check(&[[10, 0, 0, 2]], true), Verdict::Warn);
        assert_eq!(check(&[[10, 0, 0, 2]], false), Verdict::Fail);
        assert_eq!(check(&[[10, 0, 0, 9]], false), Verdict::Skip);
        assert_eq!(check(&[], false), Verdict::Skip);
        assert_eq!(is_shared(None, own, true).verdict, Verdict::Skip);
    }
}
