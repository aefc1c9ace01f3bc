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

// eventRecorder records events of pods and reports errors, by calling [Hooks].
type eventRecorder struct {
	opts *Options
}

// recordEvent records an event about a pod by calling the hook Event. It does nothing if the pod or the hook is nil.
func (er eventRecorder) recordEvent(pod *corev1.Pod, eventType, reason, message string) {
	if hook := er.opts.Hooks.Event; hook != nil && pod != nil {
		hook(pod, eventType, reason, message)
	}
}

// reportError logs err and passes it to Hooks.Error. It is for errors that concern no single volume, such as a damaged record.
func (er eventRecorder) reportError(err error) {
	er.opts.Logger.Error("volumes", "error", err)
	if hook := er.opts.Hooks.Error; hook != nil {
		hook(err)
	}
}

// reportFailure logs the error of a plugin call, and records a warning event for a set-up or stage with the kubelet's reason and
// text.
func (er eventRecorder) reportFailure(call *pluginCall, err error) {
	er.opts.Logger.Warn("volume", "pod", call.pod, "error", err)
	// The volume stays usable, or is removed.
	if _, usable := errors.AsType[*StaleError](err); usable || call.kind == plan.TearDown || call.kind == plan.Unstage {
		return
	}
	cause := err
	if e, ok := errors.AsType[*Error](err); ok {
		cause = e.Err
	}
	attach, attaching := errors.AsType[*attachError](cause)
	reason, verb, operation := ReasonFailedMount, "MountVolume", "SetUp"
	if call.volume.Block {
		reason, verb, operation = ReasonFailedMapVolume, "MapVolume", "MapPodDevice"
	}
	switch {
	case attaching:
		operation, cause = "WaitForAttach", attach.Err
	case errors.Is(cause, claim.ErrAffinity):
		operation = "NodeAffinity check"
	case call.kind == plan.Stage && call.volume.Block:
		operation = "SetUpDevice"
	case call.kind == plan.Stage:
		operation = "MountDevice"
	}
	er.recordEvent(call.volume.Pod, corev1.EventTypeWarning, reason, fmt.Sprintf("%s.%s failed for volume %q : %v", verb, operation, call.volume.SpecName, cause))
}
