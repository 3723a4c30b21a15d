// Package arch holds the rules about the shape of the repository, as tests: which package may import which, which
// directories exist, how long files and functions may be, and that every package says what it is.
//
// It has no code of its own. The rules are data at the head of the tests; a limit is only ever tightened.
package arch
