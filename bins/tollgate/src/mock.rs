//! `tollgate mock`: the mock provider alone, for tests from other languages.

use tollgate_mock::{Mock, Options};

use crate::{
    cli::{Failure, MockArgs},
    signals,
};

pub(crate) fn run(args: &MockArgs) -> Result<(), Failure> {
    let options = Options { listen: args.listen, ..Options::default() };
    let mock = Mock::start(options).map_err(Failure::refused)?;
    if args.print_address {
        println!("listening on http://{}", mock.addr);
    }
    signals::wait_for_stop().map_err(Failure::refused)
}
