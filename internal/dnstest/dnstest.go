// Package dnstest is a DNS server for tests: it listens on loopback, answers
// what the test tells it, and counts the questions.
package dnstest

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

// Answer is what the server says about a name.
type Answer struct {
	// Addrs are handed out as A and AAAA records by family, in this order, to be kept for
	// no time at all.
	Addrs []netip.Addr
	// Aliases is a chain of names (CNAME) that leads from the name asked for to the one
	// that the Addrs are of.
	Aliases []string
	// Code replaces the answer if it is not RCodeSuccess.
	Code dnsmessage.RCode
	// Silent drops the question.
	Silent bool
}

// Addrs is the Answer that holds the given addresses.
func Addrs(addrs ...string) Answer {
	a := Answer{}
	for _, s := range addrs {
		a.Addrs = append(a.Addrs, netip.MustParseAddr(s))
	}
	return a
}

// Server answers over UDP. Unknown names get NXDOMAIN.
type Server struct {
	conn net.PacketConn
	done chan struct{}

	mu      sync.Mutex
	answers map[string][]Answer // by lower-case name without the last dot
	rounds  map[string]int      // questions for A so far, by name
	names   []string            // names asked for, each once
	clients []net.Conn          // the resolvers' ends
	closed  bool
}

// Start runs a server until the test ends.
func Start(tb testing.TB) *Server {
	tb.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		tb.Fatalf("listen for DNS on loopback: %v", err)
	}
	s := &Server{
		conn:    conn,
		done:    make(chan struct{}),
		answers: map[string][]Answer{},
		rounds:  map[string]int{},
	}
	go s.serve()
	tb.Cleanup(s.close)
	return s
}

// close ends the lookups that are still waiting for an answer too: a resolver
// would wait for 5 s, whatever its context says, and outlive the test.
func (s *Server) close() {
	_ = s.conn.Close()
	<-s.done
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, c := range s.clients {
		c.Close()
	}
}

// Set makes name answer the given answers in turn, one for each lookup; the
// last one stays. A lookup is a question for A with its question for AAAA.
func (s *Server) Set(name string, answers ...Answer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[key(name)] = answers
	delete(s.rounds, key(name))
}

// Lookups returns how often name was looked up.
func (s *Server) Lookups(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rounds[key(name)]
}

// Names returns the names that were asked for, each once, as they were written.
func (s *Server) Names() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.names)
}

// Resolver returns a resolver that asks this server and nobody else.
func (s *Server) Resolver() *net.Resolver {
	return &net.Resolver{
		PreferGo: true,
		Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			c, err := d.DialContext(ctx, "udp", s.conn.LocalAddr().String())
			if err != nil {
				return nil, err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.closed {
				c.Close()
				return nil, net.ErrClosed
			}
			s.clients = append(s.clients, c)
			return c, nil
		},
	}
}

func key(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func (s *Server) serve() {
	defer close(s.done)
	buf := make([]byte, 1500)
	for {
		n, from, err := s.conn.ReadFrom(buf)
		if err != nil {
			return
		}
		if reply := s.reply(buf[:n]); reply != nil {
			_, _ = s.conn.WriteTo(reply, from) // a lost packet, as on any network
		}
	}
}

func (s *Server) reply(packet []byte) []byte {
	var msg dnsmessage.Message
	if err := msg.Unpack(packet); err != nil || len(msg.Questions) != 1 {
		return nil
	}
	q := msg.Questions[0]
	answer, known := s.next(q)
	if answer.Silent {
		return nil
	}
	msg.Response, msg.Authoritative, msg.RecursionAvailable = true, true, true
	msg.Additionals = nil
	switch {
	case !known:
		msg.RCode = dnsmessage.RCodeNameError
	case answer.Code != dnsmessage.RCodeSuccess:
		msg.RCode = answer.Code
	default:
		msg.Answers = records(q, answer)
	}
	reply, err := msg.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// next counts the lookup and picks its answer. The resolver asks for A and
// AAAA at the same time, in either order: each kind keeps its own count.
func (s *Server) next(q dnsmessage.Question) (Answer, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.names, q.Name.String()) {
		s.names = append(s.names, q.Name.String())
	}
	name := key(q.Name.String())
	counter := name
	if q.Type == dnsmessage.TypeAAAA {
		counter += "|AAAA"
	}
	round := s.rounds[counter]
	s.rounds[counter]++
	answers := s.answers[name]
	if len(answers) == 0 {
		return Answer{}, false
	}
	return answers[min(round, len(answers)-1)], true
}

func records(q dnsmessage.Question, answer Answer) []dnsmessage.Resource {
	var out []dnsmessage.Resource
	name := q.Name
	for _, alias := range answer.Aliases {
		to := dnsmessage.MustNewName(strings.TrimSuffix(alias, ".") + ".")
		header := dnsmessage.ResourceHeader{Name: name, Type: dnsmessage.TypeCNAME, Class: dnsmessage.ClassINET}
		out = append(out, dnsmessage.Resource{Header: header, Body: &dnsmessage.CNAMEResource{CNAME: to}})
		name = to
	}
	for _, a := range answer.Addrs {
		header := dnsmessage.ResourceHeader{Name: name, Type: q.Type, Class: dnsmessage.ClassINET}
		switch {
		case a.Is4() && q.Type == dnsmessage.TypeA:
			out = append(out, dnsmessage.Resource{Header: header, Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && q.Type == dnsmessage.TypeAAAA:
			out = append(out, dnsmessage.Resource{Header: header, Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return out
}
