// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletconfig

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/yaml"
)

// maxSize is the largest document that Parse reads, in bytes.
const maxSize = 1 << 20

// Parse parses one KubeletConfiguration in YAML or JSON. It does not set defaults or check values: call SetDefaults and Validate.
// Each error starts with the name of the invalid field.
func Parse(data []byte) (Configuration, error) {
	var c Configuration
	if len(data) > maxSize {
		return c, fmt.Errorf("must not be larger than %d bytes", maxSize)
	}
	fields := map[string]json.RawMessage{}
	if err := yaml.UnmarshalStrict(data, &fields); err != nil {
		return c, err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(fields)) { // one by one: errors of the decoder do not name the field
		if err := c.parseField(name, fields[name]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if c.APIVersion != APIVersion || c.Kind != Kind {
		errs = append(errs, fmt.Errorf("apiVersion and kind: %q and %q are not %s and %s", c.APIVersion, c.Kind, APIVersion, Kind))
	}
	return c, errors.Join(errs...)
}

func (c *Configuration) parseField(name string, value json.RawMessage) error {
	if slices.Contains(Unsupported(), name) {
		if isEmpty(value) {
			return nil
		}
		return errors.New("the field is not supported by this version")
	}
	return yaml.UnmarshalStrict(fmt.Appendf(nil, "{%q: %s}", name, value), c)
}

// isEmpty reports whether a value is null, false, "", 0, "0", "0s", an empty list, or an object of such values.
func isEmpty(value json.RawMessage) bool {
	var v any
	return json.Unmarshal(value, &v) == nil && isZero(v)
}

func isZero(v any) bool {
	switch v := v.(type) {
	case map[string]any:
		for _, field := range v {
			if !isZero(field) {
				return false
			}
		}
		return true
	case []any:
		return len(v) == 0
	}
	return v == nil || v == false || v == "" || v == "0" || v == "0s" || v == 0.0
}
