//go:build !race

package simulate

// fewerSeeds divides the default number of seeds; see race_test.go.
const fewerSeeds = 1
