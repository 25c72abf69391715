package ampcors

// Tests use only the exported API, as a user does, and this.
const NumReasons = numReasons
