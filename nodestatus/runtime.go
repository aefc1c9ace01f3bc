// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodestatus

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	utilversion "k8s.io/apimachinery/pkg/util/version"

	"github.com/seed81659283/nodeagent/cri"
)

// RuntimeTimeout is how old the last good status of a runtime may become before the runtime counts as down, and RuntimePeriod how
// often it is asked, as in the kubelet.
const (
	RuntimeTimeout = 30 * time.Second
	RuntimePeriod  = 5 * time.Second
)

// RuntimeState is what is known of the container runtime. The zero value is one that was never asked. A status that could not be read
// changes nothing: what is known becomes older.
type RuntimeState struct {
	// Synced is when the runtime last said that it is ready. Zero: it never did.
	LastReady time.Time
	// Asked: a status was read, so what follows is known.
	Observed bool
	// NotReady and NetworkNotReady are why the runtime and its network are not ready, or nil.
	NotReady, NetworkNotReady error
	// Handlers by name, and Features, are those of the last status of a runtime that is ready.
	Handlers []cri.RuntimeHandler
	Features cri.RuntimeFeatures

	// Name and Version, such as "containerd" and "2.4.0". An empty Version is not known.
	Name, Version string
}

// After returns what is known after a status that was read at a time. s stays as it is.
func (s RuntimeState) WithStatus(status cri.Status, now time.Time) RuntimeState {
	s.Observed = true
	s.NetworkNotReady = unmet(status, cri.ConditionNetworkReady, "container runtime network not ready")
	if s.NotReady = unmet(status, cri.ConditionRuntimeReady, "container runtime not ready"); s.NotReady != nil {
		return s
	}
	s.LastReady, s.Features = now, status.Features
	s.Handlers = slices.Clone(status.Handlers)
	slices.SortStableFunc(s.Handlers, func(a, b cri.RuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// WithVersion returns what is known after the runtime has said who it is. A version that is none is "Unknown" on the Node object.
func (s RuntimeState) WithVersion(v cri.Version) RuntimeState {
	s.Name, s.Version = v.RuntimeName, ""
	if parsed, err := utilversion.ParseSemantic(v.RuntimeVersion); err == nil {
		s.Version = parsed.String()
	} else if parsed, err := utilversion.ParseGeneric(v.RuntimeVersion); err == nil {
		s.Version = parsed.String()
	}
	return s
}

// unmet returns an error unless a condition is true.
func unmet(status cri.Status, condition, text string) error {
	c, found := status.Condition(condition)
	switch {
	case !found:
		return fmt.Errorf("%s: <nil>", text)
	case !c.Status:
		return fmt.Errorf("%s: %s=false reason:%s message:%s", text, c.Type, c.Reason, c.Message)
	}
	return nil
}

// errors returns why the runtime, one of the agent's own checks, and the network keep a node from being ready, in the kubelet's order
// (runtimeErrors and networkErrors in pkg/kubelet/runtime.go).
func (s *RuntimeState) errors(now time.Time, unhealthy []error) (errs []error) {
	switch {
	case s.LastReady.IsZero():
		errs = append(errs, errors.New("container runtime status check may not have completed yet"))
	case now.Sub(s.LastReady) >= RuntimeTimeout:
		errs = append(errs, errors.New("container runtime is down"))
	}
	errs = append(append(errs, unhealthy...), s.NotReady)
	if !s.Observed {
		return append(errs, errors.New("network state unknown"))
	}
	return append(errs, s.NetworkNotReady)
}

// version is what a Node object has of it.
func (s *RuntimeState) version() string { return s.Name + "://" + either(s.Version, "Unknown") }
