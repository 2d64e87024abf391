package guard_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/matryer/is"

	"github.com/postlane-go/postlane/delivery/guard"
)

func TestCheckURLNormalForm(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := mustGuard(t, guard.Policy{})
	for raw, want := range map[string]string{
		"https://example.com":                       "https://example.com",
		"HTTPS://Example.COM/Hook":                  "https://example.com/Hook",
		"https://example.com./hook":                 "https://example.com/hook",
		"https://example.com:/hook":                 "https://example.com/hook",
		"https://example.com:443/":                  "https://example.com:443/",
		"https://bücher.example.com/":               "https://xn--bcher-kva.example.com/",
		"https://BÜCHER.example.com:8443/":          "https://xn--bcher-kva.example.com:8443/",
		"https://example.com/a%2Fb/c?x=%20&y#part":  "https://example.com/a%2Fb/c?x=%20&y",
		"https://example.com//a/../b":               "https://example.com//a/../b",
		"https://[2606:4700:4700:0000:0:0:0:1111]/": "https://[2606:4700:4700::1111]/",
		"https://8.8.8.8.:8443/":                    "https://8.8.8.8:8443/",
		"https://sub_domain.example.com/?":          "https://sub_domain.example.com/?",
	} {
		u, err := g.CheckURL(raw)
		is.NoErr(err)
		is.Equal(u.String(), want)
	}
}

func TestCheckURLNamesTheRule(t *testing.T) {
	t.Parallel()
	g := mustGuard(t, guard.Policy{})
	for raw, rule := range map[string]string{
		"": guard.RuleLength,
		"https://example.com/" + strings.Repeat("a", 2029): guard.RuleLength,
		// Under the limit as written, over it when encoded.
		"https://example.com/" + strings.Repeat("é", 500): guard.RuleLength,
		"https://example.com/a b":                         guard.RuleCharacters,
		"https://example.com/\u202e":                      guard.RuleCharacters,
		"https://example.com/\xff":                        guard.RuleCharacters,
		"https://example.com\\@10.0.0.1/":                 guard.RuleCharacters,
		"https://exa%zzmple.com/":                         guard.RuleSyntax,
		"https:example.com":                               guard.RuleSyntax,
		"https:/example.com":                              guard.RuleSyntax,
		"example.com/hook":                                guard.RuleScheme,
		"http://example.com/":                             guard.RuleScheme,
		"https://user@example.com/":                       guard.RuleCredentials,
		"https://:443/":                                   guard.RuleHost,
		"https://example..com/":                           guard.RuleHost,
		"https://*.example.com/":                          guard.RuleHost,
		"https://0x7f.1/":                                 guard.RuleSpelling,
		"https://017700000001/":                           guard.RuleSpelling,
		"https://[::ffff:8.8.8.8]/":                       guard.RuleSpelling,
		"https://ⓔⓧⓐⓜⓟⓛⓔ.com/":                            guard.RuleSpelling,
		"https://localhost/":                              guard.RuleSpecialName,
		"https://vault.service.internal/":                 guard.RuleSpecialName,
		"https://redis/":                                  guard.RuleSpecialName,
		"https://example.com:25/":                         guard.RulePort,
		"https://example.com:0/":                          guard.RulePort,
		"https://example.com:0443/":                       guard.RulePort,
		"https://example.com:65536/":                      guard.RulePort,
		"https://10.0.0.1/":                               guard.RulePrivate,
		"https://[fe80::1%25eth0]/":                       guard.RuleZone,
	} {
		_, err := g.CheckURL(raw)
		if got := ruleOf(t, err); got != rule {
			t.Errorf("%.60q: got rule %q, want %q", raw, got, rule)
		}
		if err != nil && strings.Contains(err.Error(), "example.com") {
			t.Errorf("%.60q: the text repeats the URL: %v", raw, err)
		}
	}
}

func TestURLOfExactlyTheLimit(t *testing.T) {
	t.Parallel()
	is := is.New(t)
	g := mustGuard(t, guard.Policy{})
	const head = "https://example.com/"
	_, err := g.CheckURL(head + strings.Repeat("a", guard.MaxURLLength-len(head)))
	is.NoErr(err)
	_, err = g.CheckURL(head + strings.Repeat("a", guard.MaxURLLength-len(head)+1))
	is.Equal(ruleOf(t, err), guard.RuleLength)
}

// FuzzCheckURL holds, for any text: no panic; what is accepted is accepted
// again in its normal form, unchanged; and it cannot name a refused address.
func FuzzCheckURL(f *testing.F) {
	for _, c := range readCorpus(f) {
		f.Add(c.URL)
		if c.RedirectTo != "" {
			f.Add(c.RedirectTo)
		}
	}
	production, development := mustGuard(f, guard.Policy{}), mustGuard(f, guard.Policy{Development: true})
	f.Fuzz(func(t *testing.T, raw string) {
		for _, g := range []*guard.Guard{production, development} {
			u, err := g.CheckURL(raw)
			if err != nil {
				ruleOf(t, err)
				continue
			}
			normal := u.String()
			again, err := g.CheckURL(normal)
			if err != nil {
				t.Fatalf("%q is accepted, its normal form %q is not: %v", raw, normal, err)
			}
			if again.String() != normal || again.Host != u.Host {
				t.Fatalf("%q became %q, and that became %q", raw, normal, again)
			}
			if u.Scheme != "https" && !(g.Development() && u.Scheme == "http") || u.User != nil || u.Fragment != "" || u.Opaque != "" {
				t.Fatalf("%q became %q", raw, normal)
			}
			if len(normal) > guard.MaxURLLength {
				t.Fatalf("%q became %d bytes", raw, len(normal))
			}
			// Another reading of the same text finds the same host.
			parsed, err := url.Parse(normal)
			if err != nil || parsed.Hostname() != u.Hostname() {
				t.Fatalf("%q: %v, %v", normal, parsed, err)
			}
			host := u.Hostname()
			if a, err := netip.ParseAddr(host); err == nil && g.CheckAddr(a) != nil {
				t.Fatalf("%q leads to %s", raw, a)
			}
			if strings.ContainsAny(host, " \t\r\n\x00/\\@%") || strings.HasSuffix(host, ".") {
				t.Fatalf("%q has the host %q", raw, host)
			}
		}
	})
}
