// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Error is the error of a handler that failed, or that did not return before its context ended.
type Error struct {
	Call    Call
	Handler *corev1.LifecycleHandler
	Output  string // first MaxOutput bytes of the command output
	Err     error  // the cause; an [*ExitError] for a command with a non-zero exit code
}

// Error returns the kubelet's error text for the failed handler.
func (e *Error) Error() string {
	var handler string
	switch h := e.Handler; {
	case h.Exec != nil:
		handler = fmt.Sprintf("Exec lifecycle hook (%v)", h.Exec.Command)
	case h.HTTPGet != nil:
		handler = fmt.Sprintf("HTTP lifecycle hook (%s)", h.HTTPGet.Path)
	case h.Sleep != nil:
		handler = fmt.Sprintf("Sleep lifecycle hook (%d)", h.Sleep.Seconds)
	default:
		return fmt.Sprintf("Cannot run handler: invalid handler: %v", e.Err)
	}
	pod := e.Call.Pod
	text := fmt.Sprintf("%s for Container %q in Pod \"%s_%s(%s)\" failed - error: %v",
		handler, e.Call.Container.Name, pod.Name, pod.Namespace, pod.UID, e.Err)
	if e.Handler.Exec != nil {
		text += fmt.Sprintf(", message: %q", e.Output)
	}
	return text
}

// Unwrap returns e.Err, the cause of the failed handler.
func (e *Error) Unwrap() error { return e.Err }
