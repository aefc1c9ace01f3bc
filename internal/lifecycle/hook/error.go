// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Error says that a handler failed, or did not end before its context did.
type Error struct {
	Call    Call
	Handler *corev1.LifecycleHandler
	Output  string // of a command, the first MaxOutput bytes
	Err     error  // the cause; an [*ExitError] where a command ended with another code than zero
}

// Error returns the text that users of the kubelet know.
func (e *Error) Error() string {
	var what string
	switch h := e.Handler; {
	case h.Exec != nil:
		what = fmt.Sprintf("Exec lifecycle hook (%v)", h.Exec.Command)
	case h.HTTPGet != nil:
		what = fmt.Sprintf("HTTP lifecycle hook (%s)", h.HTTPGet.Path)
	case h.Sleep != nil:
		what = fmt.Sprintf("Sleep lifecycle hook (%d)", h.Sleep.Seconds)
	default:
		return fmt.Sprintf("Cannot run handler: invalid handler: %v", e.Err)
	}
	pod := e.Call.Pod
	text := fmt.Sprintf("%s for Container %q in Pod \"%s_%s(%s)\" failed - error: %v",
		what, e.Call.Container.Name, pod.Name, pod.Namespace, pod.UID, e.Err)
	if e.Handler.Exec != nil {
		text += fmt.Sprintf(", message: %q", e.Output)
	}
	return text
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }
