//go:build race

package simulate

// fewerSeeds divides the default number of seeds: nothing here runs at the same time, and the race detector makes it ten times slower.
const fewerSeeds = 10
