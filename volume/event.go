// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/volume/claim"
	"github.com/seed81659283/nodeagent/internal/volume/plan"
)

// eventRecorder records events of pods and reports errors.
type eventRecorder struct {
	opts *Options
}

// record records an event about a pod.
func (er eventRecorder) record(pod *corev1.Pod, eventType, reason, message string) {
	if hook := er.opts.Hooks.Event; hook != nil && pod != nil {
		hook(pod, eventType, reason, message)
	}
}

// reportError reports an error that concerns no volume in particular.
func (er eventRecorder) reportError(err error) {
	er.opts.Logger.Error("volumes", "error", err)
	if hook := er.opts.Hooks.Error; hook != nil {
		hook(err)
	}
}

// reportFailure reports the error of a call. The cause alone is in the event, in the kubelet's words.
func (er eventRecorder) reportFailure(c *pluginCall, err error) {
	er.opts.Logger.Warn("volume", "pod", c.pod, "error", err)
	if _, usable := errors.AsType[*StaleError](err); usable || c.kind == plan.TearDown || c.kind == plan.Unstage {
		return
	}
	cause := err
	if e, ok := errors.AsType[*Error](err); ok {
		cause = e.Err
	}
	attach, attaching := errors.AsType[*attachError](cause)
	reason, verb, what := ReasonFailedMount, "MountVolume", "SetUp"
	if c.volume.Block {
		reason, verb, what = ReasonFailedMapVolume, "MapVolume", "MapPodDevice"
	}
	switch {
	case attaching:
		what, cause = "WaitForAttach", attach.Err
	case errors.Is(cause, claim.ErrAffinity):
		what = "NodeAffinity check"
	case c.kind == plan.Stage && c.volume.Block:
		what = "SetUpDevice"
	case c.kind == plan.Stage:
		what = "MountDevice"
	}
	er.record(c.volume.Pod, corev1.EventTypeWarning, reason, fmt.Sprintf("%s.%s failed for volume %q : %v", verb, what, c.volume.Spec, cause))
}
