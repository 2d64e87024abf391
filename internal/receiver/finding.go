package receiver

import "strings"

// Finding is what a judgement found about one request: none, one or several.
type Finding uint16

// The findings. Duplicate, Redelivered, Unverified and Abandoned break no
// promise; all others do.
const (
	Duplicate    Finding = 1 << iota // its webhook-id arrived before
	Redelivered                      // a duplicate of an event that was answered 2xx before
	Unverified                       // no secret is known for its path
	Abandoned                        // the sender hung up, or Serve stopped, before the answer
	Overlap                          // another request of its stream was open
	OutOfOrder                       // first arrival, its seq not above all before it
	Gap                              // first arrival, its prev not the highest seq before it
	Conflicting                      // a duplicate with another body, type, asset or seq
	BadSignature                     // no known secret signed it
	BadTimestamp                     // more than 5 minutes off, or unreadable
	BadHeaders                       // a header of the contract missing, doubled or unreadable
	Unread                           // its body broke off or was too large
	findings     = iota
)

const problems = Overlap | OutOfOrder | Gap | Conflicting | BadSignature | BadTimestamp | BadHeaders | Unread

var findingNames = [findings]string{
	"duplicate", "redelivered", "unverified", "abandoned", "overlap", "out_of_order",
	"gap", "conflicting", "bad_signature", "bad_timestamp", "bad_headers", "unread",
}

// Problem reports whether the findings break a promise.
func (f Finding) Problem() bool { return f&problems != 0 }

// String lists the findings, separated by commas.
func (f Finding) String() string {
	var names []string
	for i, name := range findingNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}
