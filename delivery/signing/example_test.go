package signing_test

import (
	"fmt"
	"time"

	"github.com/postlane-go/postlane/delivery/signing"
)

func Example() {
	secret, _ := signing.Parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	body := []byte(`{"test": 2432232314}`)

	// The sender.
	signature := signing.Sign(nil, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, body, secret)
	fmt.Println(string(signature))
	fmt.Println(secret) // never the key

	// The receiver.
	headers := signing.Headers{ID: "msg_p5jXN8AQM9LWM0D4loKWxJek", Timestamp: "1614265330", Signature: string(signature)}
	now := time.Unix(1614265330, 0)
	fmt.Println(signing.Verify([]signing.Key{secret}, headers, body, now, signing.DefaultTolerance))
	// Output:
	// v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=
	// whsec_[redacted]
	// <nil>
}
