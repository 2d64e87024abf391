package guard_test

import (
	"fmt"
	"net"

	"github.com/postlane-go/postlane/delivery/guard"
)

func Example() {
	g, _ := guard.New(guard.Policy{})

	_, err := g.CheckURL("https://[::ffff:169.254.169.254]/latest/meta-data/")
	fmt.Println(err)
	u, _ := g.CheckURL("https://Bücher.example.com./hook#top")
	fmt.Println(u)

	// What protects is the check of the address that is dialled.
	dialer := net.Dialer{Control: g.Control}
	_ = dialer
	// Output:
	// endpoint refused: its address is not allowed; use an endpoint with a public internet address
	// https://xn--bcher-kva.example.com/hook
}
