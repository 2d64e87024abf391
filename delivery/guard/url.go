package guard

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// MaxURLLength is the longest URL accepted, in bytes, both as written and in
// the normal form that CheckURL returns.
const MaxURLLength = 2048

// CheckURL judges the text of an endpoint URL and returns its normal form:
// scheme and host in lower case, an internationalised name in its ASCII form,
// one trailing dot of the host, an empty port and the fragment removed. Path
// and query stay as they are. Checking the normal form again returns it
// unchanged, so it is what should be stored and dialled.
//
// An accepted URL can still lead to a refused address: a name is only judged
// when it is dialled, by Control. The error is a *Refusal.
func (g *Guard) CheckURL(raw string) (*url.URL, error) {
	if raw == "" {
		return nil, refuse(RuleLength, "the URL is empty; give an absolute https URL")
	}
	if len(raw) > MaxURLLength {
		return nil, refuse(RuleLength, textLength)
	}
	if !plainText(raw) {
		return nil, refuse(RuleCharacters, "the URL holds a space, backslash or control character; percent-encode it or remove it")
	}
	u, err := url.Parse(raw)
	if err != nil {
		// The parser's error repeats the URL, query secrets included.
		return nil, refuse(RuleSyntax, "the URL cannot be parsed; give an absolute https URL")
	}
	if r := g.checkScheme(u.Scheme); r != nil {
		return nil, r
	}
	if u.Opaque != "" || u.Host == "" {
		return nil, refuse(RuleSyntax, "the URL names no host; write it as https://host/path")
	}
	if u.User != nil {
		return nil, refuse(RuleCredentials, "the URL holds a user name or password; send credentials in a custom header instead")
	}
	host, r := g.normalHost(u.Host, u.Hostname())
	if r != nil {
		return nil, r
	}
	port, r := normalPort(u.Port())
	if r != nil {
		return nil, r
	}
	u.Host = host + port
	u.Fragment, u.RawFragment = "", ""
	if len(u.String()) > MaxURLLength {
		return nil, refuse(RuleLength, textLength)
	}
	return u, nil
}

const textLength = "the URL is longer than 2048 bytes; shorten it"

func (g *Guard) checkScheme(scheme string) *Refusal {
	if scheme == "https" || g.development && scheme == "http" {
		return nil
	}
	if scheme == "" {
		return refuse(RuleScheme, "the URL has no scheme; write it as https://host/path")
	}
	return refuse(RuleScheme, "the URL's scheme is not https; use an https endpoint")
}

// plainText reports whether raw is UTF-8 without characters that change how a
// URL is split (space, backslash), end a line or a log record (controls,
// U+2028, U+2029), or hide in what a person reads (BOM, bidirectional
// controls).
func plainText(raw string) bool {
	for i, r := range raw {
		switch {
		case r <= ' ' || r == '\\' || r == 0x7f:
			return false
		case r < utf8.RuneSelf:
		case r <= 0x9f, r == '\u2028', r == '\u2029', r == '\ufeff',
			unicode.Is(unicode.Bidi_Control, r):
			return false
		case r == utf8.RuneError:
			if _, size := utf8.DecodeRuneInString(raw[i:]); size == 1 {
				return false
			}
		}
	}
	return true
}

// normalHost returns the host as it is to be dialled, with brackets for IPv6.
func (g *Guard) normalHost(authority, hostname string) (string, *Refusal) {
	if hostname == "" {
		return "", refuse(RuleHost, "the URL names no host; write it as https://host/path")
	}
	if strings.HasPrefix(authority, "[") {
		return g.normalIPv6(hostname)
	}
	name, r := asciiName(hostname)
	if r != nil {
		return "", r
	}
	if endsInNumber(name) {
		return g.normalIPv4(name)
	}
	if !validName(name) {
		return "", refuse(RuleHost, "the host is not a valid name")
	}
	if !g.development && specialName(name) {
		return "", refuse(RuleSpecialName, "the host name only exists inside a private network; use a name of the public DNS")
	}
	return name, nil
}

func (g *Guard) normalIPv6(literal string) (string, *Refusal) {
	addr, err := netip.ParseAddr(literal)
	if err != nil || !addr.Is6() {
		return "", refuse(RuleSpelling, "the host in brackets is not an IPv6 address")
	}
	if addr.Zone() != "" {
		return "", refuseAddr(RuleZone, addr)
	}
	if r := g.judge(addr); r != nil {
		return "", r
	}
	if addr.Is4In6() {
		return "", refuse(RuleSpelling, "the host is an IPv4 address written as IPv6; write it as a.b.c.d")
	}
	return "[" + addr.String() + "]", nil
}

// normalIPv4 takes canonical dotted quads only. inet_aton, and with it the
// system's resolver, also reads octal, hexadecimal and shortened forms
// (0x7f.1, 017700000001), which Go and other parsers take for names.
func (g *Guard) normalIPv4(literal string) (string, *Refusal) {
	addr, err := netip.ParseAddr(literal)
	if err != nil || !addr.Is4() {
		return "", refuse(RuleSpelling, "the host ends in a number but is not an IPv4 address written as a.b.c.d")
	}
	if r := g.judge(addr); r != nil {
		return "", r
	}
	return addr.String(), nil
}

// asciiName returns the host in lower-case ASCII without its trailing dot. A
// name that only looks international, and maps to plain ASCII (full-width
// letters, circled digits), is refused: what a person reads there is not what
// is dialled.
func asciiName(hostname string) (string, *Refusal) {
	name := strings.ToLower(hostname)
	if !isASCII(hostname) {
		mapped, err := idna.Lookup.ToASCII(hostname)
		if err != nil {
			return "", refuse(RuleHost, "the host is not a valid internationalised name")
		}
		name = mapped
		if !strings.Contains("."+name, ".xn--") {
			return "", refuse(RuleSpelling, "the host is an unusual spelling of a plain name; write it in plain letters")
		}
	}
	return strings.TrimSuffix(name, "."), nil
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// endsInNumber is the test of the WHATWG URL standard, section 3.5: such a
// host is an IPv4 address or nothing. No top-level domain is numeric.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "" {
		return false
	}
	if strings.HasPrefix(last, "0x") {
		last = last[2:]
		return strings.Trim(last, "0123456789abcdef") == ""
	}
	return strings.Trim(last, "0123456789") == ""
}

// validName reports whether name is made of 1 to 63 letters, digits, hyphens
// and underscores per label, 253 in all (RFC 1035, section 2.3.4, less the
// root). The underscore is in no host name standard and in many host names.
func validName(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return false
		}
		for i := range len(label) {
			c := label[i]
			if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

// privateSuffixes are names that the public DNS never answers: RFC 6761
// (localhost), RFC 6762 (local), RFC 8375 (home.arpa), ICANN's reservation of
// internal for private use (2024), and the default of many Linux hosts files.
var privateSuffixes = []string{".localhost", ".local", ".internal", ".localdomain", ".home.arpa"}

func specialName(name string) bool {
	if !strings.Contains(name, ".") {
		return true // resolved through search domains or a container's own DNS
	}
	for _, suffix := range privateSuffixes {
		if strings.HasSuffix(name, suffix) {
			return true
		}
	}
	return false
}

// normalPort returns ":port", or "" for the scheme's default.
func normalPort(port string) (string, *Refusal) {
	if port == "" {
		return "", nil
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || port[0] == '0' || badPort(uint16(n)) {
		return "", refuse(RulePort, textPort)
	}
	return ":" + port, nil
}
