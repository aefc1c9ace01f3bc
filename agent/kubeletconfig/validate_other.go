// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// validate returns an error for each value that the kubelet refuses, or that conflicts with a field of c. Missing fields are valid. It does not check
// fields in state DefaultOnly: checkStates does. Source: pkg/kubelet/apis/config/validation.
func (o *otherFields) validate(c *Configuration) (errs []error) {
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, n := range []struct {
		name      string
		value     *int32
		low, high int64
	}{
		{"iptablesDropBit", o.IPTablesDropBit, 0, 31},
		{"iptablesMasqueradeBit", o.IPTablesMasqueradeBit, 0, 31},
		{"containerLogMaxWorkers", o.ContainerLogMaxWorkers, 1, math.MaxInt32},
	} {
		if n.value != nil && (int64(*n.value) < n.low || int64(*n.value) > n.high) {
			refuse("%s: %d is not between %d and %d", n.name, *n.value, n.low, n.high)
		}
	}
	if interval := o.ContainerLogMonitorInterval; interval != nil && interval.Duration < 3*time.Second {
		refuse("containerLogMonitorInterval: %s must be at least 3s", interval.Duration)
	}
	if modes := []string{"", "promiscuous-bridge", "hairpin-veth", "none"}; !slices.Contains(modes, o.HairpinMode) {
		refuse("hairpinMode: %q is neither promiscuous-bridge, hairpin-veth nor none", o.HairpinMode)
	}
	if enforced := o.EnforceNodeAllocatable; enforced != nil && *c.CgroupsPerQOS && !slices.Equal(enforced, []string{"pods"}) {
		refuse("enforceNodeAllocatable: %q is not supported by this version with cgroupsPerQOS, want [\"pods\"]", enforced)
	}
	if images := o.ImageServiceEndpoint; images != "" && images != c.ContainerRuntimeEndpoint {
		refuse("imageServiceEndpoint: %q is not supported by this version, want that of containerRuntimeEndpoint, %q", images, c.ContainerRuntimeEndpoint)
	}
	return append(errs, o.Logging.validate()...)
}

// validate returns an error for each field that the kubelet refuses. Source: k8s.io/component-base/logs/api/v1/options.go.
func (l *logging) validate() (errs []error) {
	if l.FlushFrequency.Duration < 0 {
		errs = append(errs, fmt.Errorf("logging.flushFrequency: %s must be greater than zero", l.FlushFrequency.Duration))
	}
	if l.Verbosity > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("logging.verbosity: %d is greater than %d", l.Verbosity, math.MaxInt32))
	}
	for i, module := range l.VModule {
		if module.FilePattern == "" || strings.ContainsAny(module.FilePattern, "=,") {
			errs = append(errs, fmt.Errorf("logging.vmodule[%d].filePattern: %q must not be empty and not contain = or a comma", i, module.FilePattern))
		}
		if module.Verbosity > math.MaxInt32 {
			errs = append(errs, fmt.Errorf("logging.vmodule[%d].verbosity: %d is greater than %d", i, module.Verbosity, math.MaxInt32))
		}
	}
	return errs
}
