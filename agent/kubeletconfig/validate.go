// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"
	"unicode"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
)

// Validate returns the joined errors of all fields with values that the kubelet rejects. An error contains the name and value of the field. Call
// SetDefaults first. Source: pkg/kubelet/apis/config/validation.
func (c *Configuration) Validate() error { return errors.Join(c.validate()...) }

// validate returns an error for each invalid field.
func (c *Configuration) validate() []error {
	errs := slices.Concat(c.validateNumbers(), c.validateImages(), c.validateServer(), c.validateSources(), c.validateLists(), gateErrors(c.FeatureGates))
	if c.other != nil {
		errs = append(errs, c.other.validate(c)...)
	}
	for _, check := range []func() error{
		func() error { _, err := c.DNS(); return err },
		func() error { _, err := c.LogPolicy(); return err },
		func() error { _, err := c.Reserved(); return err },
		func() error { _, err := c.EvictionRules(); return err },
		func() error { _, err := c.ShutdownPeriods(); return err },
		func() error { _, err := c.Topology(); return err },
		func() error { _, err := c.CPUManager(); return err },
		func() error { _, err := c.MemoryManager(0); return err },
	} {
		err := check()
		same := func(other error) bool { return other.Error() == err.Error() } // evictionHard is also part of the reserved resources
		if err != nil && !slices.ContainsFunc(errs, same) {
			errs = append(errs, err)
		}
	}
	return errs
}

// validateNumbers checks the ranges of integers.
func (c *Configuration) validateNumbers() (errs []error) {
	for _, n := range []struct {
		name      string
		value     int64
		low, high int64
	}{
		{"port", int64(c.Port), 1, 65535},
		{"readOnlyPort", int64(c.ReadOnlyPort), 0, 65535},
		{"healthzPort", int64(*c.HealthzPort), 0, 65535},
		{"maxPods", int64(c.MaxPods), 0, 1<<31 - 1},
		{"podsPerCore", int64(c.PodsPerCore), 0, 1<<31 - 1},
		{"nodeLeaseDurationSeconds", int64(c.NodeLeaseDurationSeconds), 1, 1<<31 - 1},
		{"kubeAPIQPS", int64(*c.KubeAPIQPS), 0, 1<<31 - 1},
		{"kubeAPIBurst", int64(c.KubeAPIBurst), 0, 1<<31 - 1},
		{"eventRecordQPS", int64(*c.EventRecordQPS), 0, 1<<31 - 1},
		{"eventBurst", int64(c.EventBurst), 0, 1<<31 - 1},
		{"registryPullQPS", int64(*c.RegistryPullQPS), 0, 1<<31 - 1},
		{"registryBurst", int64(c.RegistryBurst), 0, 1<<31 - 1},
		{"maxParallelImagePulls", int64(*c.MaxParallelImagePulls), 1, 1<<31 - 1},
		{"imageGCHighThresholdPercent", int64(*c.ImageGCHighThresholdPercent), 0, 100},
		{"imageGCLowThresholdPercent", int64(*c.ImageGCLowThresholdPercent), 0, 100},
		{"containerLogMaxFiles", int64(*c.ContainerLogMaxFiles), 2, 1<<31 - 1},
		{"oomScoreAdj", int64(*c.OOMScoreAdj), -1000, 1000},
	} {
		if n.value < n.low || n.value > n.high {
			errs = append(errs, fmt.Errorf("%s: %d is not between %d and %d", n.name, n.value, n.low, n.high))
		}
	}
	if c.MaxOpenFiles < 0 {
		errs = append(errs, fmt.Errorf("maxOpenFiles: %d must not be negative", c.MaxOpenFiles))
	}
	if factor := c.MemoryThrottlingFactor; factor != nil && !(*factor > 0 && *factor <= 1) { // also not a number
		errs = append(errs, fmt.Errorf("memoryThrottlingFactor: %g must be greater than 0 and at most 1", *factor))
	}
	return errs
}

// validateImages checks the fields for image pulls and image garbage collection.
func (c *Configuration) validateImages() (errs []error) {
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if low, high := *c.ImageGCLowThresholdPercent, *c.ImageGCHighThresholdPercent; low >= high {
		refuse("imageGCLowThresholdPercent: %d must be less than imageGCHighThresholdPercent, which is %d", low, high)
	}
	if age := c.ImageMinimumGCAge.Duration; age < 0 {
		refuse("imageMinimumGCAge: %s must not be negative", age)
	}
	if age := c.ImageMaximumGCAge.Duration; age < 0 {
		refuse("imageMaximumGCAge: %s must not be negative", age)
	}
	if least, most := c.ImageMinimumGCAge.Duration, c.ImageMaximumGCAge.Duration; most > 0 && most <= least {
		refuse("imageMaximumGCAge: %s must be greater than imageMinimumGCAge, which is %s", most, least)
	}
	if *c.SerializeImagePulls && *c.MaxParallelImagePulls > 1 {
		refuse("maxParallelImagePulls: %d must be 1, because serializeImagePulls is true", *c.MaxParallelImagePulls)
	}
	return errs
}

// validateServer checks the fields for the API of the node.
func (c *Configuration) validateServer() (errs []error) {
	if _, err := netip.ParseAddr(c.Address); err != nil {
		errs = append(errs, fmt.Errorf("address: %w", err))
	}
	if *c.EnableSystemLogQuery && !*c.EnableSystemLogHandler {
		errs = append(errs, errors.New("enableSystemLogQuery: true needs enableSystemLogHandler, which is false"))
	}
	if modes := []string{webhook, AlwaysAllow}; !slices.Contains(modes, c.Authorization.Mode) {
		errs = append(errs, fmt.Errorf("authorization.mode: %q is neither %s nor %s", c.Authorization.Mode, webhook, AlwaysAllow))
	}
	if (c.TLSCertFile == "") != (c.TLSPrivateKeyFile == "") {
		errs = append(errs, fmt.Errorf("tlsCertFile and tlsPrivateKeyFile: %q and %q: one of them is not set", c.TLSCertFile, c.TLSPrivateKeyFile))
	}
	if c.ServerTLSBootstrap && c.TLSCertFile != "" {
		errs = append(errs, fmt.Errorf("serverTLSBootstrap and tlsCertFile: true and %q are both set", c.TLSCertFile))
	}
	return errs
}

// validateSources checks the periods of the sources of static pods. The kubelet panics for a negative period.
func (c *Configuration) validateSources() (errs []error) {
	for _, p := range []struct {
		name   string
		period time.Duration
	}{{"fileCheckFrequency", c.FileCheckFrequency.Duration}, {"httpCheckFrequency", c.HTTPCheckFrequency.Duration}} {
		if p.period <= 0 {
			errs = append(errs, fmt.Errorf("%s: %s must be greater than zero", p.name, p.period))
		}
	}
	return errs
}

// validateLists checks podLogsDir and registerWithTaints.
func (c *Configuration) validateLists() (errs []error) {
	switch dir := c.PodLogsDir; {
	case !filepath.IsAbs(dir) || filepath.Clean(dir) != dir:
		errs = append(errs, fmt.Errorf("podLogsDir: %q is no absolute, normalized path", dir))
	case strings.ContainsFunc(dir, func(r rune) bool { return r > unicode.MaxASCII }):
		errs = append(errs, fmt.Errorf("podLogsDir: %q has characters that are not ASCII", dir))
	}
	for i, taint := range c.RegisterWithTaints {
		refuse := func(field, value string, causes []string) {
			if len(causes) > 0 {
				errs = append(errs, fmt.Errorf("registerWithTaints[%d].%s: %q: %s", i, field, value, strings.Join(causes, "; ")))
			}
		}
		refuse("key", taint.Key, content.IsLabelKey(taint.Key))
		refuse("value", taint.Value, content.IsLabelValue(taint.Value))
		if effects := []corev1.TaintEffect{"", corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}; !slices.Contains(effects, taint.Effect) {
			refuse("effect", string(taint.Effect), []string{"want NoSchedule, PreferNoSchedule or NoExecute"})
		}
		if taint.TimeAdded != nil {
			refuse("timeAdded", taint.TimeAdded.String(), []string{"must not be set"})
		}
	}
	return errs
}
