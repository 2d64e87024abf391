package journal

// Subscription was created: Began before the call, Ended after it.
type Subscription struct {
	// Path of its endpoint, which no other has.
	Path string `json:"path"`
	// Receiver is the process behind it.
	Receiver string `json:"receiver"`
	// Types are the patterns of event types that it wants.
	Types     []string `json:"types"`
	PublicKey string   `json:"public_key,omitempty"`
	Began     int64    `json:"began"`
	Ended     int64    `json:"ended"`
}

// Secret is one that may sign a subscription's requests.
type Secret struct {
	Path   string `json:"path"`
	Secret string `json:"secret"`
}

// The changes of a subscription.
const (
	Pause  = "pause"
	Enable = "enable"
	Delete = "delete"
	Rotate = "rotate"
)

// Change is what was done to a subscription. Only what succeeded is written, with the
// time before its first try and after its last.
type Change struct {
	Path  string `json:"path"`
	What  string `json:"what"`
	Began int64  `json:"began"`
	Ended int64  `json:"ended"`
}

// Fault is what was done to the system.
type Fault struct {
	Kind string `json:"kind"`
	// Target is the process that it was done to; "" for all.
	Target string `json:"target,omitempty"`
	Began  int64  `json:"began"`
	Ended  int64  `json:"ended"`
}

// How an event was written.
const (
	Direct = "direct" // delivery.Enqueue
	Staged = "staged" // outbox.Stage, and a relay
)

// Event is one that a transaction wrote.
type Event struct {
	ID    string `json:"id"`
	Type  string `json:"type"`
	Asset string `json:"asset"`
	Route string `json:"route"`
	Nonce uint64 `json:"nonce"`
	Size  int    `json:"size"`
	// Version counts the changes of the asset where the transaction held a lock on
	// it: these are in the order of their versions, whatever else overlaps. 0: it
	// held none.
	Version int64 `json:"version,omitempty"`
}

// Intent is written before a transaction is told to commit or roll back.
type Intent struct {
	Tx string `json:"tx"`
	// Began is the time before the transaction began.
	Began int64 `json:"began"`
	// Events exist if it commits, in their order.
	Events []Event `json:"events"`
	// Undone were rolled back to a savepoint, and never exist.
	Undone []Event `json:"undone,omitempty"`
}

// The outcomes of transactions.
const (
	Committed  = "committed"
	RolledBack = "rolled back"
	Unknown    = "unknown"
)

// Outcome is what became of a transaction. Without one, its process was killed.
type Outcome struct {
	Tx      string `json:"tx"`
	At      int64  `json:"at"`
	Outcome string `json:"outcome"`
}

// Start is a request's arrival. Number is unique within its journal.
type Start struct {
	Number    int64  `json:"n"`
	At        int64  `json:"at"`
	Path      string `json:"path"`
	ID        string `json:"id"`
	Type      string `json:"type"`
	Asset     string `json:"asset"`
	Attempt   string `json:"attempt"`
	Worker    string `json:"worker"` // that sent it
	Timestamp string `json:"timestamp"`
	Signature string `json:"signature"`
	Hash      string `json:"hash"` // SHA-256 of the body, in hex
}

// How requests end.
const (
	Begun    = "begun"    // not yet: an answer was begun that takes a while
	Answered = "answered" // the whole answer was written
	Cut      = "cut"      // the receiver ended the connection
	Left     = "left"     // the sender did
)

// End is that of a request: the time before the last byte of the answer is written, or
// when its sender was seen to have left. A request without one, or with one that is only
// Begun, was open when its receiver was killed.
type End struct {
	Number int64 `json:"n"`
	At     int64 `json:"at"`
	// Status was sent; 0 if none was.
	Status int    `json:"status"`
	How    string `json:"how"`
}

// Commit is a transaction that the database knows at the end.
type Commit struct {
	Tx string `json:"tx"`
}

// The states of deliveries at the end.
const (
	Pending   = "pending"
	Delivered = "delivered"
	Dead      = "dead"
	Discarded = "discarded"
)

// State is what the database says of a delivery at the end.
type State struct {
	Path  string `json:"path"`
	Event string `json:"event"`
	State string `json:"state"`
}
