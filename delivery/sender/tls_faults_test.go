package sender_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/sender"
	"github.com/postlane-go/postlane/internal/dnstest"
)

// authority issues certificates for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(tb testing.TB) *authority {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "test authority"},
		NotBefore:             time.Now().Add(-time.Hour),
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	a := &authority{key: newKey(tb), pool: x509.NewCertPool()}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &a.key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		tb.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

// config is a server's, with a certificate for the hosts; adjust may change
// the certificate before it is signed.
func (a *authority) config(tb testing.TB, host string, adjust ...func(*x509.Certificate)) *tls.Config {
	tb.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: host},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(host); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{host}
	}
	for _, f := range adjust {
		f(template)
	}
	key := newKey(tb)
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		tb.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}
}

func TestFaultsOfTLS(t *testing.T) {
	t.Parallel()
	trusted, stranger := newAuthority(t), newAuthority(t)
	const host = "receiver.test"
	with := func(c *tls.Config, adjust func(*tls.Config)) *tls.Config { adjust(c); return c }
	for _, r := range []struct {
		name    string
		config  *tls.Config
		serve   func(*peer)
		outcome sender.Outcome
	}{
		{"F66_UnknownAuthority", stranger.config(t, host), answering(ok200), sender.TLSUntrusted},
		{"F67_Expired", trusted.config(t, host, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }), answering(ok200), sender.TLSExpired},
		{"F67_NotYetValid", trusted.config(t, host, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(time.Minute) }), answering(ok200), sender.TLSExpired},
		{"F66_NotForServers", trusted.config(t, host, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }), answering(ok200), sender.TLSUntrusted},
		{"F68_WrongHost", trusted.config(t, "other.test"), answering(ok200), sender.TLSWrongHost},
		{"F69_HandshakeStall", nil, func(p *peer) {
			for {
				if _, err := p.r.ReadByte(); err != nil {
					return
				}
			}
		}, sender.TLSTimeout},
		{"F70_PlainHTTPAnswer", nil, func(p *peer) { p.write("HTTP/1.1 400 Bad Request\r\n\r\n") }, sender.TLSHandshake},
		{"F70_PlainHTTPClose", nil, (*peer).finish, sender.ConnectionClosed},
		{"F70_Garbage", nil, func(p *peer) { p.write(strings.Repeat("SSH-2.0 ", 10)) }, sender.TLSHandshake},
		{"F71_ClientCertificateRequired", with(trusted.config(t, host), func(c *tls.Config) { c.ClientAuth = tls.RequireAnyClientCert }), answering(ok200), sender.TLSHandshake},
		{"F72_OldVersionOnly", with(trusted.config(t, host), func(c *tls.Config) { c.MinVersion, c.MaxVersion = tls.VersionTLS10, tls.VersionTLS11 }), answering(ok200), sender.TLSHandshake},
		{"Healthy", trusted.config(t, host), answering(ok200), sender.Delivered},
	} {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			is := is.New(t)
			srv := listen(t, r.config, r.serve)
			dns := dnstest.Start(t)
			dns.Set(host, dnstest.Addrs("127.0.0.1"))
			s := newSender(t, sender.Config{Resolver: dns.Resolver(), RootCAs: trusted.pool, TLSTimeout: 2 * time.Second})
			got := send(t, s, newRequest("https://"+host+":"+srv.port()+"/"))
			status := 0
			if r.outcome == sender.Delivered {
				status = 200
				is.True(got.Timing.TLS > 0)
			}
			want(t, got, r.outcome, status)
			is.True(!got.OurFault())
			is.True(!strings.Contains(got.Text(), "127.0.0.1"))
			if r.outcome != sender.Delivered {
				is.Equal(len(srv.seen()), 0) // no payload to whom it was not meant for
			}
		})
	}
}

func TestF73_AddressInTheURL(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	named := listen(t, ca.config(t, "receiver.test"), answering(ok200))
	addressed := listen(t, ca.config(t, "127.0.0.1"), answering(ok200))
	s := newSender(t, sender.Config{RootCAs: ca.pool})
	want(t, send(t, s, newRequest("https://127.0.0.1:"+named.port()+"/")), sender.TLSWrongHost, 0)
	want(t, send(t, s, newRequest("https://127.0.0.1:"+addressed.port()+"/")), sender.Delivered, 200)
}

func TestF74_TrailingDotIsRemoved(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ca := newAuthority(t)
	srv := listen(t, ca.config(t, "receiver.test"), answering(ok200))
	dns := dnstest.Start(t)
	dns.Set("receiver.test", dnstest.Addrs("127.0.0.1"))
	s := newSender(t, sender.Config{Resolver: dns.Resolver(), RootCAs: ca.pool})
	want(t, send(t, s, newRequest("https://Receiver.TEST.:"+srv.port()+"/")), sender.Delivered, 200)
	is.Equal(srv.seen()[0].Host, "receiver.test:"+srv.port())
}

// TestF30toF35_HTTP2IsNeverSpoken holds the rows about HTTP/2 at once: where it
// is not negotiated, no peer can make the Transport repeat a request.
func TestF30toF35_HTTP2IsNeverSpoken(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	ca := newAuthority(t)
	config := ca.config(t, "127.0.0.1")
	config.NextProtos = []string{"h2", "http/1.1"}
	offered := make(chan []string, 8)
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		offered <- hello.SupportedProtos
		return nil, nil
	}
	srv := listen(t, config, answering(ok200))
	s := newSender(t, sender.Config{RootCAs: ca.pool})
	want(t, send(t, s, newRequest("https://127.0.0.1:"+srv.port()+"/")), sender.Delivered, 200)
	for _, proto := range <-offered {
		is.True(proto != "h2")
	}
	is.Equal(srv.seen()[0].Proto, "HTTP/1.1")
}
