// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package nodetest

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// SelectedBehavior is the behavior of all containers that it selects.
type SelectedBehavior struct {
	// Selector selects pods by their labels, such as "app=web,tier!=cache". Empty: all pods.
	Selector string
	// Container is the name of a container. Empty: all containers of the pod.
	Container string
	Behavior  Behavior
}

// checkSelected returns an error that names the first invalid selector.
func (o *Options) checkSelected() error {
	for i := range o.Selected {
		if _, err := labels.Parse(o.Selected[i].Selector); err != nil {
			return fmt.Errorf("nodetest.Options.Selected[%d].Selector %q: %w", i, o.Selected[i].Selector, err)
		}
	}
	return nil
}

// selectBehavior returns the behavior of the first element of Options.Selected that matches the pod's labels and the
// container. ok is false if none matches.
func (o *Options) selectBehavior(pod *corev1.Pod, container string) (b Behavior, ok bool) {
	for i := range o.Selected {
		s := &o.Selected[i]
		selector, err := labels.Parse(s.Selector)
		if err == nil && selector.Matches(labels.Set(pod.Labels)) && (s.Container == "" || s.Container == container) {
			return s.Behavior, true
		}
	}
	return b, false
}
