package retry_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/postlane-go/postlane/delivery/retry"
)

func ExampleSchedule_Delay() {
	var schedule retry.Schedule
	fmt.Println(schedule.Delay(1, nil, 0), schedule.Delay(2, nil, 0), schedule.Delay(2, nil, time.Hour))

	varied := schedule.Delay(2, rand.Int64N, 0)
	fmt.Println(varied >= 270*time.Second && varied <= 330*time.Second)
	// Output:
	// 5s 5m0s 1h0m0s
	// true
}
