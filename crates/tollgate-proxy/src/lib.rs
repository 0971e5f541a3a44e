//! The hyper service: route, authenticate, inspect, admit, forward, meter, settle.
