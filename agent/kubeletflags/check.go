// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package kubeletflags

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/seed81659283/nodeagent/agent/kubeletconfig"
	"github.com/seed81659283/nodeagent/nodestatus"
)

// removeInvalid removes the given flags with unsupported or invalid values, and returns an error for each. It checks each flag alone.
func (l *CommandLine) removeInvalid() (errs []error) {
	l.given = slices.DeleteFunc(l.given, func(g givenFlag) bool {
		err := g.checkValue()
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", g.describeFlag(), err))
		}
		return err != nil
	})
	return errs
}

func (g *givenFlag) checkValue() error {
	switch {
	case g.Field != "":
		return g.checkField()
	case g.Name == "hostname-override":
		_, err := g.nodeName()
		return err
	case g.Name == "node-ip":
		_, err := nodestatus.ParseNodeIPs(g.value.String())
		return err
	case g.Name == "node-labels":
		return checkLabels(g.labels())
	case g.Name == "cloud-provider" && g.value.String() != "" && g.value.String() != externalProvider:
		return fmt.Errorf("the cloud provider is not supported by this version, want %q", externalProvider)
	case g.Name == "cert-dir" && g.value.String() == "":
		return errors.New("the value is not supported by this version: it is empty")
	case g.State == kubeletconfig.DefaultOnly && g.value.String() != g.Default:
		return fmt.Errorf("the flag is not supported by this version, want %q", g.Default)
	}
	return nil
}

// checkField returns an error if package kubeletconfig refuses the value of g for its field. It also refuses a zero value that would mean another
// default.
func (g *givenFlag) checkField() error {
	c, err := parseFields(setField(map[string]any{}, g.Field, g.value.fieldValue()))
	if err != nil {
		return err
	}
	if g.Name == "container-runtime-endpoint" && c.ContainerRuntimeEndpoint == "" {
		return errors.New("the value is not supported by this version: it is empty")
	}
	var defaults kubeletconfig.Configuration
	defaults.SetDefaults(kubeletconfig.Defaults{Cluster: true, RemoteRuntime: true})
	isScalar := func(v reflect.Value) bool {
		return v.IsValid() && v.Kind() != reflect.Map && v.Kind() != reflect.Slice && v.Kind() != reflect.Pointer
	}
	field, instead := fieldOf(&c, g.Field), fieldOf(&defaults, g.Field)
	if isScalar(field) && field.IsZero() && !instead.IsZero() && g.value.String() != g.Default {
		return fmt.Errorf("the value is not supported by this version: it would mean the default, %v", instead)
	}
	return nil
}

// nodeName returns the node name of --hostname-override. It returns "" for an empty value: the agent then uses the host name.
func (g *givenFlag) nodeName() (string, error) {
	if name := g.value.String(); name != "" {
		return nodestatus.NodeName(name)
	}
	return "", nil
}

func (g *givenFlag) labels() map[string]string {
	labels, _ := g.value.content.(map[string]string)
	return labels
}

// checkLabels returns an error for labels that the API server refuses, or that a node must not set. Source: ValidateKubeletFlags.
func checkLabels(labels map[string]string) error {
	c := nodestatus.Config{Name: "n", Labels: labels}
	return c.Validate()
}

// parseFields decodes an object with fields of a KubeletConfiguration.
func parseFields(fields map[string]any) (kubeletconfig.Configuration, error) {
	document := maps.Clone(fields)
	document["apiVersion"], document["kind"] = kubeletconfig.APIVersion, kubeletconfig.Kind
	text, err := json.Marshal(document)
	if err != nil {
		return kubeletconfig.Configuration{}, err
	}
	return kubeletconfig.Parse(text)
}

// setField sets the field at path, whose parts are separated by dots, in an object. It returns the object.
func setField(object map[string]any, path string, value any) map[string]any {
	name, rest, nested := strings.Cut(path, ".")
	if !nested {
		object[name] = value
		return object
	}
	inner, _ := object[name].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
	}
	object[name] = setField(inner, rest, value)
	return object
}

// fieldOf returns the field of c at path. It returns the zero Value if the type Configuration does not have the field.
func fieldOf(c *kubeletconfig.Configuration, path string) reflect.Value {
	if path == "" {
		return reflect.Value{}
	}
	v := reflect.ValueOf(c).Elem()
	for name := range strings.SplitSeq(path, ".") {
		fields := reflect.VisibleFields(v.Type())
		i := slices.IndexFunc(fields, func(f reflect.StructField) bool {
			tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			return tag == name
		})
		if i < 0 {
			return reflect.Value{}
		}
		v = v.FieldByIndex(fields[i].Index)
	}
	return v
}
