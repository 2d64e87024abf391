// Package guard decides which endpoint URLs may be registered and which
// addresses may be connected to, so that a webhook endpoint cannot be used to
// reach what only this process can reach: loopback, private networks, cloud
// metadata, and the many spellings and encapsulations of those.
//
// There are two moments, and both are needed:
//
//	registration   Guard.CheckURL   everything the text of the URL gives away
//	connection     Guard.Control    the address handed to connect(2)
//
// Only the second one protects. A name can answer a public address while it is
// registered and 127.0.0.1 when it is delivered to, so a check before the dial
// proves nothing about the dial. CheckURL exists to tell a person early, and
// to keep out URLs on which parsers disagree about the host.
//
// Guard.Control belongs in net.Dialer.Control. It runs after name resolution,
// for each address tried, fallback dials included, with the socket created and
// not yet connected. It does not run for a connection taken from a pool: such
// a connection was judged when it was opened.
//
// The address rules are the IANA special-purpose registries, in the form kept
// by code.dny.dev/ssrf, with the platform addresses that no registry lists.
// IPv6 is an allow list (2000::/3, the only global unicast space that IANA has
// opened) less its special blocks, so that unassigned and future special
// space is refused without a new release.
package guard
