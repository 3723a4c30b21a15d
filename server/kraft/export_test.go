package kraft

// ImportOn is Import with a file system of the test's.
var ImportOn = importOn
