//! Each behaviour, seen from the other end of the socket.

mod bodies;
mod burst;
mod client;
mod endings;
mod records;
