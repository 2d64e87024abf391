package guard

import "net/netip"

type namedPrefix struct {
	prefix netip.Prefix
	rule   string
}

// specialPrefixes names the rule for an address, first match wins. It is
// longer than what must be refused in words only: anything that is missing
// here is still refused by the registries (see Guard.judge), under the name
// RuleSpecial. The exceptions are the platform addresses at the top, which
// are in no registry, or inside a range that development allows.
//
// Sources: the IANA IPv4 and IPv6 Special-Purpose Address Registries, and the
// platforms' own documentation.
var specialPrefixes = parsePrefixes([][2]string{
	{"168.63.129.16/32", RuleMetadata},   // Azure WireServer: public space, in no registry
	{"100.100.100.200/32", RuleMetadata}, // Alibaba Cloud, inside RFC 6598
	{"192.0.0.192/32", RuleMetadata},     // Oracle Cloud Classic, inside RFC 6890
	{"169.254.169.254/32", RuleMetadata}, // most clouds
	{"169.254.170.2/32", RuleMetadata},   // Amazon ECS task credentials
	{"169.254.170.23/32", RuleMetadata},  // Amazon EKS pod identity
	{"fd00:ec2::/32", RuleMetadata},      // Amazon, inside RFC 4193
	{"fd20:ce::/32", RuleMetadata},       // Google Cloud, inside RFC 4193

	{"0.0.0.0/8", RuleUnspecified},         // RFC 791; Linux connects 0.0.0.0 to itself
	{"127.0.0.0/8", RuleLoopback},          // RFC 1122
	{"10.0.0.0/8", RulePrivate},            // RFC 1918
	{"172.16.0.0/12", RulePrivate},         // RFC 1918
	{"192.168.0.0/16", RulePrivate},        // RFC 1918
	{"100.64.0.0/10", RuleShared},          // RFC 6598
	{"169.254.0.0/16", RuleLinkLocal},      // RFC 3927
	{"192.0.2.0/24", RuleDocumentation},    // RFC 5737
	{"198.51.100.0/24", RuleDocumentation}, // RFC 5737
	{"203.0.113.0/24", RuleDocumentation},  // RFC 5737
	{"198.18.0.0/15", RuleBenchmarking},    // RFC 2544
	{"224.0.0.0/4", RuleMulticast},         // RFC 1112
	{"240.0.0.0/4", RuleReserved},          // RFC 1112, with the limited broadcast address

	{"::/128", RuleUnspecified},          // RFC 4291
	{"::1/128", RuleLoopback},            // RFC 4291
	{"::/96", RuleEmbedded},              // IPv4-compatible, RFC 4291, deprecated
	{"::ffff:0:0:0/96", RuleEmbedded},    // IPv4-translated, RFC 2765
	{"64:ff9b::/32", RuleNAT64},          // RFC 6052 and the local-use block of RFC 8215
	{"2002::/16", RuleEmbedded},          // 6to4, RFC 3056
	{"2001::/32", RuleEmbedded},          // Teredo, RFC 4380
	{"2001:2::/48", RuleBenchmarking},    // RFC 5180
	{"2001:db8::/32", RuleDocumentation}, // RFC 3849
	{"3fff::/20", RuleDocumentation},     // RFC 9637
	{"fc00::/7", RulePrivate},            // unique local, RFC 4193
	{"fe80::/10", RuleLinkLocal},         // RFC 4291
	{"fec0::/10", RuleSiteLocal},         // RFC 3879, deprecated
	{"ff00::/8", RuleMulticast},          // RFC 4291
})

func parsePrefixes(rows [][2]string) []namedPrefix {
	out := make([]namedPrefix, len(rows))
	for i, row := range rows {
		out[i] = namedPrefix{netip.MustParsePrefix(row[0]), row[1]}
	}
	return out
}

// ruleOf returns the name of the first special range that holds addr, or "".
func ruleOf(addr netip.Addr) string {
	for i := range specialPrefixes {
		if specialPrefixes[i].prefix.Contains(addr) {
			return specialPrefixes[i].rule
		}
	}
	return ""
}
