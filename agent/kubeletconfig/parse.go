// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
)

// maxSize is the largest file that Parse and Load read, in bytes.
const maxSize = 1 << 20

// Parse parses one KubeletConfiguration in YAML or JSON. It does not set defaults or check values of supported fields: call SetDefaults and
// Validate. Each error starts with the name of the invalid field.
func Parse(data []byte) (Configuration, error) {
	if len(data) > maxSize {
		return Configuration{}, fmt.Errorf("must not be larger than %d bytes", maxSize)
	}
	fields, err := parseObject(data)
	if err != nil {
		return Configuration{}, err
	}
	errs := checkKubeletFields(fields)
	if version, kind := fields["apiVersion"], fields["kind"]; version != APIVersion || kind != Kind {
		errs = append(errs, fmt.Errorf("apiVersion and kind: %q and %q are not %s and %s", textOf(version), textOf(kind), APIVersion, Kind))
	}
	if len(errs) > 0 {
		return Configuration{}, errors.Join(errs...)
	}
	c, errs := newConfiguration(fields)
	return c, errors.Join(errs...)
}

// textOf returns value if it is a string, otherwise "".
func textOf(value any) string {
	s, _ := value.(string)
	return s
}

// checkKubeletFields returns an error for each unknown field of a KubeletConfiguration, and for each value of a wrong type.
func checkKubeletFields(fields object) (errs []error) {
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		field, ok := findField(reflect.TypeFor[Configuration](), name)
		if !ok {
			field, ok = findField(reflect.TypeFor[otherFields](), name)
		}
		if !ok {
			errs = append(errs, fmt.Errorf("%s: unknown field", name))
			continue
		}
		errs = append(errs, checkFields(field, name, fields[name])...)
	}
	return errs
}

// newConfiguration decodes the fields of a KubeletConfiguration, which the caller has checked with checkKubeletFields. It returns an error for each
// field and feature gate with an unsupported value.
func newConfiguration(fields object) (c Configuration, errs []error) {
	if err := decodeFields(fields, &c); err != nil {
		return c, []error{err}
	}
	other := &otherFields{}
	if err := decodeFields(fields, other); err != nil {
		return c, []error{err}
	}
	if !reflect.DeepEqual(other, &otherFields{}) {
		c.other = other
	}
	return c, append(other.checkStates(), gateErrors(c.FeatureGates)...)
}
