"""What every test may count on, whoever started them."""

import signal

# A shell without job control starts what it puts in the background with SIGINT ignored, and that is
# inherited: no child of the tests could be interrupted then.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
