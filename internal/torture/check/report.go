package check

import "fmt"

// Report is the verdict on a run.
type Report struct {
	Seed uint64 `json:"seed"`
	// Events committed, and Requests that arrived for subscriptions that are known.
	Events   int            `json:"events"`
	Requests int            `json:"requests"`
	Faults   map[string]int `json:"faults"`

	// Lost: committed, wanted by a subscription, not delivered to it and not
	// visible as pending, dead or discarded; or said to be delivered, and was not.
	Lost int `json:"lost"`
	// Phantom: arrived, and was not committed or not wanted.
	Phantom int `json:"phantom"`
	// OutOfOrder: first arrived after one that comes later, or before an earlier
	// one was settled.
	OutOfOrder int `json:"out_of_order"`
	// Overlaps: began while another request of its stream was open.
	Overlaps int `json:"overlaps"`
	// UnexplainedDuplicates: arrived again though a 2xx was sent, and no fault
	// between the two could be the reason.
	UnexplainedDuplicates int `json:"unexplained_duplicates"`

	// Stuck: still pending when everything had long been well again.
	Stuck int `json:"stuck"`
	// Corrupt: arrived with another payload, type or asset.
	Corrupt int `json:"corrupt"`
	// BadSignatures: signed with none of the subscription's secrets.
	BadSignatures int `json:"bad_signatures"`
	// WhilePaused: began between the end of a pause and its enabling, or after the
	// end of a deletion.
	WhilePaused int `json:"while_paused"`
	// Leaks: secrets and payloads in logs.
	Leaks int `json:"leaks"`
	// Bugs: lines of logs that ask to be reported.
	Bugs int `json:"bugs"`
	// Vanished: transactions whose commit was answered, and that the database
	// does not know at the end.
	Vanished int `json:"vanished"`

	// Retries: arrived again after an attempt that was not answered with a 2xx.
	Retries             int `json:"retries"`
	ExplainedOverlaps   int `json:"explained_overlaps"`
	ExplainedDuplicates int `json:"explained_duplicates"`
	// UnknownCommits: transactions of which only the database knows the outcome.
	UnknownCommits int `json:"unknown_commits"`
	Dead           int `json:"dead"`
	Discarded      int `json:"discarded"`

	// Findings are the first few of each kind, for people.
	Findings []string `json:"-"`
	found    map[string]int
}

// OK reports whether everything is 0 that must be.
func (r *Report) OK() bool {
	return r.Lost+r.Phantom+r.OutOfOrder+r.Overlaps+r.UnexplainedDuplicates+
		r.Stuck+r.Corrupt+r.BadSignatures+r.WhilePaused+r.Leaks+r.Bugs+r.Vanished == 0
}

// find counts a finding and keeps its text if it is among the first of its kind.
func (r *Report) find(count *int, kind, format string, args ...any) {
	const most = 5
	*count++
	if r.found == nil {
		r.found = map[string]int{}
	}
	if r.found[kind]++; r.found[kind] <= most {
		r.Findings = append(r.Findings, kind+": "+fmt.Sprintf(format, args...))
	}
}
