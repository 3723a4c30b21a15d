// Package compare measures the broker of this program against the floor of the machine, and judges the result by bars.
//
// A scenario is run in rounds. In each round every subject (kaas, floor) has its turn: a fresh process on a fresh directory, one
// alive at a time, so that drifts of the machine hit all alike; the directory is removed before the next turn. The load comes
// from this process (package load). What a subject used is read from outside: processor time from its CPU clock, memory
// from RssAnon in /proc. A figure is the median of its rounds, with the lowest and the highest.
//
// At most 2 GiB are written per turn, so that the kernel's limits of dirty pages are not what is measured. Nothing here is
// asserted by a test: bars are judged and printed. One scenario is about those limits, and writes until they are reached; it runs only when it
// is named.
package compare
