// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// Restored are the parts of the specs of a container and its pod that are needed to stop the container. Neither is nil.
type Restored struct {
	Pod       *corev1.Pod       // with its identity and its grace periods
	Container *corev1.Container // with its name, its ports and its preStop handler
}

// Restore restores the specs of a container of an orphaned pod from the annotations of the container. A field that cannot be read
// is left out, and the error names it; the container can be stopped all the same. Source:
// restoreSpecsFromContainerLabels in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func Restore(have *cri.Container) (Restored, error) {
	r := reader{container: have}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID:                        types.UID(have.PodUID),
			Name:                       have.Labels[cri.LabelPodName],
			Namespace:                  have.Labels[cri.LabelPodNamespace],
			DeletionGracePeriodSeconds: r.seconds(podspec.AnnotationDeletionGracePeriod),
		},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: r.seconds(podspec.AnnotationTerminationGracePeriod)},
	}
	c := &corev1.Container{Name: have.Name}
	c.Ports = decode[[]corev1.ContainerPort](&r, podspec.AnnotationPorts)
	if handler := decode[*corev1.LifecycleHandler](&r, podspec.AnnotationPreStopHandler); handler != nil {
		c.Lifecycle = &corev1.Lifecycle{PreStop: handler}
	}
	return Restored{Pod: pod, Container: c}, errors.Join(r.errs...)
}

// reader reads annotations, and remembers what is wrong with them.
type reader struct {
	container *cri.Container
	errs      []error
}

func (r *reader) fail(name string, err error) {
	r.errs = append(r.errs, fmt.Errorf("container %s: annotation %s: %w", r.container.ID, name, err))
}

// seconds returns a number, nil if there is none.
func (r *reader) seconds(name string) *int64 {
	text, found := r.container.Annotations[name]
	if !found {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.fail(name, err)
		return nil
	}
	return &n
}

// decode reads JSON. It returns the zero value if there is none, or if not all of it can be read.
func decode[T any](r *reader, name string) T {
	var value, none T
	text, found := r.container.Annotations[name]
	if !found {
		return none
	}
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		r.fail(name, err)
		return none
	}
	return value
}
