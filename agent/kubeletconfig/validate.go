// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// Validate returns the joined errors of all invalid fields. An error contains the name and value of the field. A value is
// invalid if the kubelet rejects it. Call Validate after SetDefaults. Source: pkg/kubelet/apis/config/validation.
func (c *Configuration) Validate() error {
	var errs []error
	refuse := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
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
		{"maxParallelImagePulls", int64(*c.MaxParallelImagePulls), 1, 1<<31 - 1},
		{"imageGCHighThresholdPercent", int64(*c.ImageGCHighThresholdPercent), 0, 100},
		{"imageGCLowThresholdPercent", int64(*c.ImageGCLowThresholdPercent), 0, 100},
		{"containerLogMaxFiles", int64(*c.ContainerLogMaxFiles), 2, 1<<31 - 1},
	} {
		if n.value < n.low || n.value > n.high {
			refuse("%s: %d is not between %d and %d", n.name, n.value, n.low, n.high)
		}
	}
	if low, high := *c.ImageGCLowThresholdPercent, *c.ImageGCHighThresholdPercent; low >= high {
		refuse("imageGCLowThresholdPercent: %d must be less than imageGCHighThresholdPercent, which is %d", low, high)
	}
	for name, age := range map[string]time.Duration{"imageMinimumGCAge": c.ImageMinimumGCAge.Duration, "imageMaximumGCAge": c.ImageMaximumGCAge.Duration} {
		if age < 0 {
			refuse("%s: %s must not be negative", name, age)
		}
	}
	if least, most := c.ImageMinimumGCAge.Duration, c.ImageMaximumGCAge.Duration; most > 0 && most <= least {
		refuse("imageMaximumGCAge: %s must be greater than imageMinimumGCAge, which is %s", most, least)
	}
	if _, err := netip.ParseAddr(c.Address); err != nil {
		refuse("address: %w", err)
	}
	errs = append(errs, c.validateServer()...)
	for _, check := range []func() error{
		func() error { _, err := c.DNS(); return err },
		func() error { _, err := c.LogPolicy(); return err },
		func() error { _, err := c.Reserved(); return err },
		func() error { _, err := c.EvictionRules(); return err },
		func() error { _, err := c.ShutdownPeriods(); return err },
		func() error { _, err := c.Topology(); return err },
	} {
		if err := check(); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (c *Configuration) validateServer() (errs []error) {
	if !*c.EnableServer {
		return nil
	}
	if modes := []string{webhook, AlwaysAllow}; !slices.Contains(modes, c.Authorization.Mode) {
		errs = append(errs, fmt.Errorf("authorization.mode: %q is neither %s nor %s", c.Authorization.Mode, webhook, AlwaysAllow))
	}
	if (c.TLSCertFile == "") != (c.TLSPrivateKeyFile == "") {
		errs = append(errs, errors.New("tlsCertFile and tlsPrivateKeyFile: one of them is not set"))
	}
	if c.ServerTLSBootstrap && c.TLSCertFile != "" {
		errs = append(errs, errors.New("serverTLSBootstrap and tlsCertFile are both set"))
	}
	return errs
}
