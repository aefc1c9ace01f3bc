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

// Constants of the kubelet. It reads the status of the container runtime every RuntimePeriod. A runtime that was not ready for
// RuntimeTimeout counts as down.
const (
	RuntimeTimeout = 30 * time.Second
	RuntimePeriod  = 5 * time.Second
)

// RuntimeState is the last observed state of the container runtime. The zero value means that no status was read yet. A failed
// read leaves it unchanged, so that LastReady gets older.
type RuntimeState struct {
	// LastReady is the time of the last status with condition RuntimeReady. Zero: never.
	LastReady time.Time
	// Observed is true once a status was read: the fields below are valid.
	Observed bool
	// NotReady and NetworkNotReady are the reasons why the runtime and the pod network are not ready; nil if they are ready.
	NotReady, NetworkNotReady error
	// Handlers, sorted by name, and Features are those of the last status in which the runtime was ready.
	Handlers []cri.RuntimeHandler
	Features cri.RuntimeFeatures

	// Name and Version of the runtime, such as "containerd" and "2.4.0". An empty Version is unknown.
	Name, Version string
}

// WithStatus returns a copy of s, updated with a status that the runtime has returned at the time now.
func (s RuntimeState) WithStatus(status cri.Status, now time.Time) RuntimeState {
	s.Observed = true
	s.NetworkNotReady = conditionError(status, cri.ConditionNetworkReady, "container runtime network not ready")
	if s.NotReady = conditionError(status, cri.ConditionRuntimeReady, "container runtime not ready"); s.NotReady != nil {
		return s
	}
	s.LastReady, s.Features = now, status.Features
	s.Handlers = slices.Clone(status.Handlers)
	slices.SortStableFunc(s.Handlers, func(a, b cri.RuntimeHandler) int { return cmp.Compare(a.Name, b.Name) })
	return s
}

// WithVersion returns a copy of s, updated with the name and version of the runtime. If the version cannot be parsed,
// Version is empty, and the Node object contains "Unknown".
func (s RuntimeState) WithVersion(version cri.Version) RuntimeState {
	s.Name, s.Version = version.RuntimeName, ""
	if parsed, err := utilversion.ParseSemantic(version.RuntimeVersion); err == nil {
		s.Version = parsed.String()
	} else if parsed, err := utilversion.ParseGeneric(version.RuntimeVersion); err == nil {
		s.Version = parsed.String()
	}
	return s
}

// conditionError returns nil if the condition of the runtime is true, or an error with its reason and the kubelet's message
// text.
func conditionError(status cri.Status, condition, text string) error {
	c, found := status.Condition(condition)
	switch {
	case !found:
		return fmt.Errorf("%s: <nil>", text)
	case !c.Status:
		return fmt.Errorf("%s: %s=false reason:%s message:%s", text, c.Type, c.Reason, c.Message)
	}
	return nil
}

// notReadyReasons returns the errors of the runtime, the agent's health checks and the pod network; nil elements are no errors.
// Source: runtimeErrors and networkErrors in pkg/kubelet/runtime.go.
func (s *RuntimeState) notReadyReasons(now time.Time, unhealthy []error) (errs []error) {
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

// nodeVersion returns the value of status.nodeInfo.containerRuntimeVersion, such as containerd://2.4.0.
func (s *RuntimeState) nodeVersion() string {
	return s.Name + "://" + firstNonEmpty(s.Version, "Unknown")
}
