// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podtree

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/seed81659283/nodeagent/internal/quantity"
)

// ParseReserved parses systemReserved or kubeReserved of a kubelet configuration. An example is {"cpu": "100m", "memory":
// "200Mi", "ephemeral-storage": "1Gi", "pid": "1000"}. CPU is rounded to the nearest millicore.
func ParseReserved(values map[string]string) (corev1.ResourceList, error) {
	list := make(corev1.ResourceList, len(values))
	for _, key := range slices.Sorted(maps.Keys(values)) {
		name := corev1.ResourceName(key)
		q, err := quantity.Parse(values[key])
		if err != nil {
			return nil, fmt.Errorf("reserve %s %q: %w", key, values[key], err)
		}
		if err := checkReserved(name, q); err != nil {
			return nil, err
		}
		if name == corev1.ResourceCPU {
			q.SetMilli((q.ScaledValue(resource.Micro) + 500) / 1000)
		}
		list[name] = q
	}
	return list, nil
}

// checkReserved returns an error if the resource cannot be reserved, or if the quantity is negative.
func checkReserved(name corev1.ResourceName, quantity resource.Quantity) error {
	switch name {
	case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, ResourcePIDs:
	default:
		return fmt.Errorf("reserve %s %s: only cpu, memory, ephemeral-storage and pid can be reserved", name, &quantity)
	}
	if quantity.Sign() < 0 {
		return fmt.Errorf("reserve %s %s: the quantity is negative", name, &quantity)
	}
	return nil
}

// Validate returns the joined errors of the reservations, or nil. Each reservation must be valid, and their sum must not
// exceed the capacity. Each error names the resource and the quantities.
func (r Reserved) Validate(capacity corev1.ResourceList) error {
	var errs []error
	for _, list := range []corev1.ResourceList{r.System, r.Kube} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			errs = append(errs, checkReserved(name, list[name]))
		}
	}
	reservation := r.Reservation(capacity)
	for _, name := range slices.Sorted(maps.Keys(reservation)) {
		kept, all := reservation[name], capacity[name]
		if kept.Cmp(all) > 0 {
			errs = append(errs, fmt.Errorf("reserve %s %s: the node has %s", name, &kept, &all))
		}
	}
	return errors.Join(errs...)
}

// ParseQOSReserved parses qosReserved of a kubelet configuration, for example {"memory": "50%"}. It returns the percentage
// of a QoS class's memory requests that pods of lower classes must not use. The result is nil if the map is empty.
func ParseQOSReserved(values map[string]string) (percent *int64, err error) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if key != string(corev1.ResourceMemory) {
			return nil, fmt.Errorf("qosReserved %s=%q: only memory can be reserved", key, values[key])
		}
		number, ok := strings.CutSuffix(values[key], "%")
		p, err := strconv.ParseInt(number, 10, 64)
		if !ok || err != nil || p < 0 || p > 100 {
			return nil, fmt.Errorf("qosReserved %s=%q: not a whole percentage from 0%% to 100%%", key, values[key])
		}
		percent = &p
	}
	return percent, nil
}
