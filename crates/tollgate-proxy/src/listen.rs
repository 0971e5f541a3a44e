//! Listening sockets.

use std::{io, net::SocketAddr};

use socket2::{Domain, Protocol, Socket, Type};

const BACKLOG: i32 = 4096;

/// The most bytes that the system keeps of what a client has not asked for yet: with more, a client that reads slowly
/// looks for minutes like one that does not read. Connections have it from their listener.
#[cfg(target_os = "linux")]
const UNSENT_BYTES_MAX: u32 = 128 * 1024;

/// Opens `count` listening sockets on one address, between which the kernel spreads connections.
///
/// With port 0 the first socket picks the port and the others share it.
pub(crate) fn listeners(address: SocketAddr, count: usize) -> io::Result<Vec<std::net::TcpListener>> {
    let mut address = address;
    let mut listeners = Vec::with_capacity(count);
    for _ in 0..count {
        let listener = listener(address, count > 1)?;
        address = listener.local_addr()?;
        listeners.push(listener);
    }
    Ok(listeners)
}

fn listener(address: SocketAddr, shared: bool) -> io::Result<std::net::TcpListener> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
