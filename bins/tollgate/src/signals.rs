//! What a serving process waits for: its end, or a configuration to load anew.

use std::{io, time::Duration};

use tokio::{
    runtime::Runtime,
    signal::unix::{Signal, SignalKind, signal},
    time::{Interval, MissedTickBehavior, interval},
};

use crate::watch::Watch;

/// How often the files of the configuration are looked at. A change is loaded after two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// What happened.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Wish {
    /// SIGTERM or SIGINT.
    Stop,
    /// SIGHUP, or a file of the configuration has changed.
    Reload,
}

/// Blocks until SIGTERM or SIGINT, where there is nothing to load.
pub(crate) fn wait_for_stop() -> io::Result<()> {
    let mut signals = Signals::new(EarlySignals::new()?)?;
    while signals.next(&mut Watch::default()) != Wish::Stop {}
    Ok(())
}

/// SIGXFSZ, as all systems but MIPS and SPARC number it: a file would become longer than the process may make files.
const FILE_TOO_LONG: i32 = 25;

/// Before there is anything to reload or to drain: SIGHUP waits, the others end the process. From here on a file that
/// may not grow is an error of its write, like a full disk, and not the end of the process.
pub(crate) struct EarlySignals {
    runtime: Runtime,
    hangup: Signal,
}

impl EarlySignals {
    /// Takes SIGHUP over.
    pub(crate) fn new() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let entered = runtime.enter();
        let hangup = signal(SignalKind::hangup())?;
        // Once taken over it stays so.
        drop(signal(SignalKind::from_raw(FILE_TOO_LONG))?);
        drop(entered);
        Ok(Self { runtime, hangup })
    }
}

/// Waits for signals and changes.
pub(crate) struct Signals {
    runtime: Runtime,
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
    looks: Interval,
}

impl Signals {
    /// Takes the other signals over too.
    pub(crate) fn new(EarlySignals { runtime, hangup }: EarlySignals) -> io::Result<Self> {
        let entered = runtime.enter();
        let terminate = signal(SignalKind::terminate())?;
        let interrupt = signal(SignalKind::interrupt())?;
        let mut looks = interval(LOOK_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        drop(entered);
        Ok(Self { runtime, terminate, interrupt, hangup, looks })
    }

    /// Blocks until something is wished.
    pub(crate) fn next(&mut self, watch: &mut Watch) -> Wish {
        let Self { runtime, terminate, interrupt, hangup, looks } = self;
        runtime.block_on(async {
            loop {
                tokio::select! {
                    biased;
                    _ = terminate.recv() => return Wish::Stop,
                    _ = interrupt.recv() => return Wish::Stop,
                    _ = hangup.recv() => return Wish::Reload,
                    _ = looks.tick() => if watch.has_changed() { return Wish::Reload },
                }
            }
        })
    }
}
