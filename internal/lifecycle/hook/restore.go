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

// Restored has the parts of a pod and container spec that are needed to stop the container. Neither field is nil.
type Restored struct {
	Pod       *corev1.Pod       // identity and grace periods
	Container *corev1.Container // name, ports and preStop handler
}

// Restore reads the spec of a container from its annotations, for an orphaned pod, which no source lists. The error names
// each annotation that cannot be parsed; the result is usable without their values. Source: restoreSpecsFromContainerLabels
// in pkg/kubelet/kuberuntime/kuberuntime_container.go.
func Restore(have *cri.Container) (Restored, error) {
	r := annotationReader{container: have}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			UID:                        types.UID(have.PodUID),
			Name:                       have.Labels[cri.LabelPodName],
			Namespace:                  have.Labels[cri.LabelPodNamespace],
			DeletionGracePeriodSeconds: r.readSeconds(podspec.AnnotationDeletionGracePeriod),
		},
		Spec: corev1.PodSpec{TerminationGracePeriodSeconds: r.readSeconds(podspec.AnnotationTerminationGracePeriod)},
	}
	c := &corev1.Container{Name: have.Name}
	c.Ports = readJSON[[]corev1.ContainerPort](&r, podspec.AnnotationPorts)
	if handler := readJSON[*corev1.LifecycleHandler](&r, podspec.AnnotationPreStopHandler); handler != nil {
		c.Lifecycle = &corev1.Lifecycle{PreStop: handler}
	}
	return Restored{Pod: pod, Container: c}, errors.Join(r.errs...)
}

// annotationReader parses annotations of a container and collects the errors.
type annotationReader struct {
	container *cri.Container
	errs      []error
}

func (r *annotationReader) addError(name string, err error) {
	r.errs = append(r.errs, fmt.Errorf("container %s: annotation %s: %w", r.container.ID, name, err))
}

// readSeconds returns the integer in the annotation with this name. It returns nil if the annotation is missing or invalid.
func (r *annotationReader) readSeconds(name string) *int64 {
	text, found := r.container.Annotations[name]
	if !found {
		return nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		r.addError(name, err)
		return nil
	}
	return &n
}

// readJSON decodes the JSON in the annotation with this name. It returns the zero value if the annotation is missing or invalid.
func readJSON[T any](r *annotationReader, name string) T {
	var value, none T
	text, found := r.container.Annotations[name]
	if !found {
		return none
	}
	if err := json.Unmarshal([]byte(text), &value); err != nil {
		r.addError(name, err)
		return none
	}
	return value
}
