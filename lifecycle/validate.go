// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Validate returns an error if a field has an invalid value, such as a relative path or a negative duration. The error names
// all such fields. [New] calls Validate.
func (o Options) Validate() error {
	var errs []error
	wrong := func(name string, value any, must string) {
		errs = append(errs, fmt.Errorf("field %s: %#v must be %s", name, value, must))
	}
	path := func(name, value string) {
		if value != "" && !filepath.IsAbs(value) {
			wrong(name, value, "an absolute path")
		}
	}
	atLeastZero := func(name string, value time.Duration) {
		if value < 0 {
			errs = append(errs, fmt.Errorf("field %s: %s must not be negative", name, value))
		}
	}
	path("Dirs.Pods", o.Dirs.Pods)
	path("Dirs.LogLinks", o.Dirs.LogLinks)
	path("Spec.LogRoot", o.Spec.LogRoot)
	path("Spec.SeccompRoot", o.Spec.SeccompRoot)
	if o.Dirs.LogLinks != "" && o.Spec.LogRoot == "" {
		wrong("Dirs.LogLinks", o.Dirs.LogLinks, "empty without Spec.LogRoot: there are no logs to link to")
	}
	atLeastZero("Pacing.StartSlotTimeout", o.Pacing.StartSlotTimeout)
	atLeastZero("Pacing.MaxRestartPeriod", o.Pacing.MaxRestartPeriod)
	atLeastZero("Pacing.Resync", o.Pacing.Resync)
	if o.Pacing.Parallel < 0 {
		wrong("Pacing.Parallel", o.Pacing.Parallel, "at least 0")
	}
	if o.Spec.HostIPs != nil {
		for i, ip := range o.Spec.HostIPs() {
			if !ip.IsValid() {
				wrong(fmt.Sprintf("Spec.HostIPs[%d]", i), ip.String(), "an IP address")
			}
		}
	}
	named := map[string]bool{}
	for i, source := range o.Sources {
		if source == "" || named[source] {
			wrong(fmt.Sprintf("Sources[%d]", i), source, "a name that no other source has")
		}
		named[source] = true
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("lifecycle.Options: %w", err)
	}
	return nil
}
