// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probe

import (
	"fmt"
	"time"
)

// MinPeriod is the shortest period of a probe.
const MinPeriod = 10 * time.Millisecond

// Spec says when to ask and how to count. The zero value of each field is the default of the Kubernetes API.
type Spec struct {
	InitialDelay     time.Duration // from the start of the container to its first probe; zero: none
	Period           time.Duration // from probe to probe; zero means 10 s, and less than a second is fine
	Timeout          time.Duration // of each attempt; zero means 1 s
	SuccessThreshold int           // successes in a row that make a success; zero means 1
	FailureThreshold int           // failures in a row that make a failure; zero means 3
}

// Validate returns an error that names the first field which makes no sense.
func (s Spec) Validate() error {
	switch {
	case s.InitialDelay < 0:
		return fmt.Errorf("initial delay %v is negative", s.InitialDelay)
	case s.Period < 0:
		return fmt.Errorf("period %v is negative", s.Period)
	case s.Timeout < 0:
		return fmt.Errorf("timeout %v is negative", s.Timeout)
	case s.Period != 0 && s.Period < MinPeriod:
		return fmt.Errorf("period %v is less than %v", s.Period, MinPeriod)
	case s.SuccessThreshold < 0:
		return fmt.Errorf("success threshold %d is negative", s.SuccessThreshold)
	case s.FailureThreshold < 0:
		return fmt.Errorf("failure threshold %d is negative", s.FailureThreshold)
	}
	return nil
}

// withDefaults fills in what is zero.
func (s Spec) withDefaults() Spec {
	if s.Period == 0 {
		s.Period = 10 * time.Second
	}
	if s.Timeout == 0 {
		s.Timeout = time.Second
	}
	if s.SuccessThreshold == 0 {
		s.SuccessThreshold = 1
	}
	if s.FailureThreshold == 0 {
		s.FailureThreshold = 3
	}
	return s
}
