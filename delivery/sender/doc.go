// Package sender makes one attempt of one delivery: a signed HTTP POST to an
// endpoint that nobody here controls, and a verdict about it.
//
//	Request ──▶ check URL ──▶ connect, guarded ──▶ POST ──▶ status + headers ──▶ body, a little
//	               │               │                │              │
//	            blocked     dns_*, connection_*,  timeout,     delivered or http_status:
//	                        tls_*, blocked        protocol_*   the verdict is final here
//
// The verdict is fixed when the final status line and the header block are in.
// What comes after them (a body that drips, breaks off or never ends,
// trailers, the close) cannot turn a delivered event into one to send again.
//
// # What it does not do
//
// No redirects, no cookies, no proxy from the environment, no HTTP/2, no
// decompression. A redirect would carry the payload and its signature to an
// address nobody registered; a proxy would be judged in the endpoint's place;
// HTTP/2 repeats requests inside one attempt, thousands of times against a
// peer that wants it so (https://go.dev/issue/52459); and a small compressed
// answer can be a very large one.
//
// # What a receiver may see twice
//
// An endpoint may close a kept-alive connection at the moment a request goes
// out on it. A failure on a reused connection, before any byte of an answer,
// is therefore tried again at once on a fresh connection, once, as the same
// attempt with the same webhook-id (Result.Resent).
//
// # What a receiver can do to itself
//
// HTTP/1.1 tells answers apart by their order alone. A receiver that writes
// more than it was asked for may find the surplus taken as its answer to the
// next request on that connection, if that one is under way before net/http
// drops the connection. It can only be the same host's next request, which it
// may answer as it likes in any case.
//
// # The standard logger
//
// net/http reports bytes that a peer sends on an idle connection ("Unsolicited
// response received on idle HTTP channel") through the global log package,
// quoted, whatever the Transport's settings. A library must not redirect a
// process's logger: a program that wants these lines in its own log calls
// slog.SetDefault, and one that wants none calls log.SetOutput.
package sender
