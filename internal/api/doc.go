// Package api is Postlane's HTTP interface, version 1, for those who do not write Go
// and for the console.
//
// Each operation is registered once, with its types; what is served at /openapi.json
// and read at /docs comes from that registration, so it cannot say anything else than
// what the code does. Keys are judged before anything of a request is looked at, and
// what belongs to another tenant is answered exactly as what does not exist.
//
// An operation that changes something is a POST, PUT, PATCH or DELETE, needs a key that may
// write, and leaves a record (package audit). GET and HEAD never change anything.
package api
