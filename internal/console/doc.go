// Package console is Postlane's web interface at /console/, for operators and, with a
// tenant's key, for a tenant.
//
// Pages are made on the server and read without scripts; one small script adds what is
// pleasant: a live view, times that go on, a count of what is selected. Nothing is loaded
// from elsewhere, and the content security policy allows no inline script or style, so
// what an endpoint answered can only ever be text.
//
// # Who may do what
//
// One signs in with an API key and gets a session cookie. The session is looked up with
// its key at every request, so revoking the key ends it at once. A tenant's key sees what
// is the tenant's, and everything else as what does not exist; a key that may only read
// gets no buttons, and 403 for an action that it asks for all the same.
//
// Whatever changes something is a POST that carries the session's token, is recorded in
// the audit log before it begins, and has its outcome added after. GET never changes
// anything: it reads in a transaction that could not.
//
// # What a page costs
//
// A page reads what it shows. Counts stop at a limit and say so ("1,000+"), lists page by
// keys, and everything runs under a statement timeout. Statistics come from tables that
// Count fills minute by minute in the background; what is newer is read from the attempts
// themselves by a BRIN index.
package console
