// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/cripb"
)

// message is a message type under test: every field of it, at any depth, must round-trip through the structs of package cri,
// or be listed here with the reason for its omission.
type message struct {
	base    proto.Message // other fields that are set in the message
	through func(proto.Message) proto.Message
	leftOut map[string]string // fields without a counterpart
	implied map[string]string // messages that are set after the round trip even if they were unset before
	merged  map[string]string // messages that are unset after the round trip if they were empty before
}

const (
	noWindows    = "package cri has no fields for Windows"
	noPath       = "deprecated for seccomp, which every runtime since CRI v1 reads"
	alwaysMade   = "a struct, not a pointer, in package cri"
	noUserIsNode = "a missing user namespace is encoded as mode NODE"
	noCollection = "the number of processes has no timestamp of its own in package cri"
	verboseOnly  = "free text of verbose responses, which package cri never requests"
)

func roundTrip[P proto.Message, S any](decode func(P) S, encode func(*S) P) func(proto.Message) proto.Message {
	return func(m proto.Message) proto.Message {
		s := decode(m.(P))
		return encode(&s)
	}
}

func roundTripValue[P proto.Message, S any](decode func(P) S, encode func(S) P) func(proto.Message) proto.Message {
	return func(m proto.Message) proto.Message { return encode(decode(m.(P))) }
}

func testedMessages() []message {
	sandboxConfig := message{
		base: &v1.PodSandboxConfig{},
		through: roundTripValue(func(p *v1.PodSandboxConfig) *cri.SandboxConfig {
			return cripb.DecodeSandboxConfig(p, "")
		}, cripb.EncodeSandboxConfig),
		leftOut: map[string]string{
			"windows": noWindows,
			"linux.security_context.seccomp_profile_path": noPath,
		},
		implied: map[string]string{
			"metadata":               alwaysMade,
			"linux":                  alwaysMade,
			"linux.security_context": alwaysMade,
			"linux.security_context.namespace_options":                alwaysMade,
			"linux.security_context.namespace_options.userns_options": noUserIsNode,
		},
	}
	containerConfig := message{
		base: &v1.ContainerConfig{},
		through: roundTripValue(cripb.DecodeContainerConfig, func(c *cri.ContainerConfig) *v1.ContainerConfig {
			p, err := cripb.EncodeContainerConfig(c)
			if err != nil {
				panic(err)
			}
			return p
		}),
		leftOut: map[string]string{
			"windows": noWindows,
			"linux.security_context.seccomp_profile_path": noPath,
		},
		implied: map[string]string{
			"metadata":               alwaysMade,
			"image":                  alwaysMade,
			"linux":                  alwaysMade,
			"linux.security_context": alwaysMade,
			"linux.security_context.namespace_options":                alwaysMade,
			"linux.security_context.namespace_options.userns_options": noUserIsNode,
		},
	}
	container := message{
		base:    &v1.Container{},
		through: roundTrip(cripb.DecodeContainer, cripb.EncodeContainer),
		implied: map[string]string{"metadata": alwaysMade, "image": alwaysMade},
	}
	containerStatus := message{
		base:    &v1.ContainerStatus{},
		through: roundTrip(cripb.DecodeContainerStatus, cripb.EncodeContainerStatus),
		leftOut: map[string]string{"resources.windows": noWindows},
		implied: map[string]string{"metadata": alwaysMade, "image": alwaysMade},
		merged: map[string]string{
			"resources": "resources without a platform are empty",
			"user":      "a user without a platform is empty",
		},
	}
	sandbox := message{
		base:    &v1.PodSandbox{},
		through: roundTrip(cripb.DecodeSandbox, cripb.EncodeSandbox),
		implied: map[string]string{"metadata": alwaysMade},
	}
	sandboxStatus := message{
		base:    &v1.PodSandboxStatus{Network: &v1.PodSandboxNetworkStatus{Ip: "first"}},
		through: roundTrip(cripb.DecodeSandboxStatus, cripb.EncodeSandboxStatus),
		implied: map[string]string{
			"metadata":                 alwaysMade,
			"linux":                    alwaysMade,
			"linux.namespaces":         alwaysMade,
			"linux.namespaces.options": alwaysMade,
			"linux.namespaces.options.userns_options": noUserIsNode,
		},
	}
	psi := map[string]string{}
	for _, of := range []string{"cpu", "memory", "io"} {
		psi[of+".psi.Some"], psi[of+".psi.Full"] = alwaysMade, alwaysMade
	}
	containerStats := message{
		base:    &v1.ContainerStats{},
		through: roundTrip(cripb.DecodeContainerStats, cripb.EncodeContainerStats),
		implied: mergeMaps(psi, map[string]string{
			"attributes": alwaysMade, "attributes.metadata": alwaysMade, "writable_layer.fs_id": alwaysMade,
		}),
	}
	sandboxStats := message{
		base:    &v1.PodSandboxStats{},
		through: roundTrip(cripb.DecodeSandboxStats, cripb.EncodeSandboxStats),
		leftOut: map[string]string{"windows": noWindows, "linux.process.timestamp": noCollection},
		implied: mergeMaps(prefixKeys("linux.", psi), prefixKeys("linux.containers.", containerStats.implied), map[string]string{
			"attributes": alwaysMade, "attributes.metadata": alwaysMade, "linux": alwaysMade,
		}),
		merged: map[string]string{"linux.process": "without the number of processes the message is empty"},
	}
	event := message{
		base: &v1.ContainerEventResponse{PodSandboxStatus: &v1.PodSandboxStatus{
			Id: "sandbox", Network: &v1.PodSandboxNetworkStatus{Ip: "first"},
		}},
		through: roundTrip(cripb.DecodeEvent, cripb.EncodeEvent),
		leftOut: prefixKeys("containers_statuses.", containerStatus.leftOut),
		implied: mergeMaps(prefixKeys("containers_statuses.", containerStatus.implied),
			prefixKeys("pod_sandbox_status.", sandboxStatus.implied)),
		merged: prefixKeys("containers_statuses.", containerStatus.merged),
	}
	return []message{
		sandboxConfig, containerConfig, container, containerStatus, sandbox, sandboxStatus,
		containerStats, sandboxStats, event,
		{
			base:    &v1.Image{},
			through: roundTrip(cripb.DecodeImage, cripb.EncodeImage),
			implied: map[string]string{"spec": alwaysMade},
		},
		{base: &v1.MetricDescriptor{}, through: roundTrip(cripb.DecodeMetricDescriptor, cripb.EncodeMetricDescriptor)},
		{base: &v1.PodSandboxMetrics{}, through: roundTrip(cripb.DecodeSandboxMetrics, cripb.EncodeSandboxMetrics)},
		{base: &v1.ImageSpec{}, through: roundTrip(cripb.DecodeImageSpec, cripb.EncodeImageSpec)},
		{base: &v1.AuthConfig{}, through: roundTripValue(cripb.DecodeAuth, cripb.EncodeAuth)},
		{
			base:    &v1.ImageFsInfoResponse{},
			through: roundTrip(cripb.DecodeImageUsage, cripb.EncodeImageUsage),
			implied: map[string]string{
				"image_filesystems.fs_id": alwaysMade, "container_filesystems.fs_id": alwaysMade,
			},
		},
		{base: &v1.LinuxContainerResources{}, through: roundTripValue(cripb.DecodeResources, cripb.EncodeResources)},
		{base: &v1.VersionResponse{}, through: roundTripValue(cripb.DecodeVersion, cripb.EncodeVersion)},
		{
			base:    &v1.StatusResponse{},
			through: roundTripValue(cripb.DecodeStatus, cripb.EncodeStatus),
			leftOut: map[string]string{"info": verboseOnly},
			implied: map[string]string{
				"status": alwaysMade, "features": alwaysMade, "runtime_handlers.features": alwaysMade,
			},
		},
		{
			base:    &v1.RuntimeConfigResponse{},
			through: roundTripValue(cripb.DecodeCgroupDriver, cripb.EncodeCgroupDriver),
			implied: map[string]string{"linux": alwaysMade},
		},
	}
}

func mergeMaps(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, m := range all {
		maps.Copy(out, m)
	}
	return out
}

func prefixKeys(prefix string, m map[string]string) map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[prefix+k] = v
	}
	return out
}

// Every field of every message is set alone, converted to package cri and back, and must be present.
func TestEveryFieldRoundTripsOrIsListed(t *testing.T) {
	for _, m := range testedMessages() {
		name := string(m.base.ProtoReflect().Descriptor().Name())
		t.Run(name, func(t *testing.T) {
			w := &fieldWalk{t: t, message: m, seen: map[string]bool{}}
			w.checkFields(nil)
			for _, listed := range []map[string]string{m.leftOut, m.implied, m.merged} {
				for path := range listed {
					assert.True(t, w.seen[path], "%s is listed but is no field of %s", path, name)
				}
			}
			require.NotEmpty(t, w.seen)
		})
	}
}

type fieldWalk struct {
	t       *testing.T
	message message
	seen    map[string]bool
}

func pathName(path []protoreflect.FieldDescriptor) string {
	names := make([]string, len(path))
	for i, f := range path {
		names[i] = string(f.Name())
	}
	return strings.Join(names, ".")
}

// checkFields checks every field below a path.
func (w *fieldWalk) checkFields(path []protoreflect.FieldDescriptor) {
	d := w.message.base.ProtoReflect().Descriptor()
	if len(path) > 0 {
		d = path[len(path)-1].Message()
	}
	for i := range d.Fields().Len() {
		w.checkField(append(slices.Clone(path), d.Fields().Get(i)))
	}
}

func (w *fieldWalk) checkField(path []protoreflect.FieldDescriptor) {
	f, name := path[len(path)-1], pathName(path)
	w.seen[name] = true
	if _, ok := w.message.leftOut[name]; ok {
		for _, v := range testValues(f) {
			_, found := w.setAndRoundTrip(path, v)
			assert.False(w.t, found, "%s survives the round trip: remove it from leftOut", name)
		}
		return
	}
	if f.Kind() == protoreflect.MessageKind && !f.IsMap() {
		if !f.IsList() {
			w.checkPresence(path)
		}
		w.checkFields(path)
		return
	}
	for _, v := range testValues(f) {
		got, found := w.setAndRoundTrip(path, v)
		if assert.True(w.t, found, "%s is not mapped", name) && !f.IsMap() && !f.IsList() {
			assert.Equal(w.t, v.Interface(), got.Interface(), "the value of %s survives the round trip", name)
		}
	}
}

// checkPresence checks a nested message: an empty message stays set, and an unset message stays unset, unless merged or
// implied lists it.
func (w *fieldWalk) checkPresence(path []protoreflect.FieldDescriptor) {
	name := pathName(path)
	_, found := w.setAndRoundTrip(path, protoreflect.Value{})
	_, merged := w.message.merged[name]
	assert.NotEqual(w.t, merged, found, "%s, set and empty before: set after the round trip", name)

	parent, found := w.setAndRoundTrip(path[:len(path)-1], protoreflect.Value{})
	if !found {
		return
	}
	_, implied := w.message.implied[name]
	if w.isSet(w.message.base.ProtoReflect(), path) {
		return // set in the base: cannot be unset
	}
	has := parent.Message().Has(path[len(path)-1])
	assert.Equal(w.t, implied, has, "%s, unset before: set after the round trip", name)
}

func (w *fieldWalk) isSet(m protoreflect.Message, path []protoreflect.FieldDescriptor) bool {
	_, ok := findValue(m, path)
	return ok
}

// setAndRoundTrip sets the field at the end of path, converts the message to package cri and back, and returns the value
// found. An invalid value sets an empty message.
func (w *fieldWalk) setAndRoundTrip(path []protoreflect.FieldDescriptor, v protoreflect.Value) (protoreflect.Value, bool) {
	in := proto.Clone(w.message.base).ProtoReflect()
	m := in
	for i, f := range path {
		switch last := i == len(path)-1; {
		case f.IsMap():
			m.Mutable(f).Map().Set(protoreflect.ValueOfString("key").MapKey(), v)
		case f.IsList() && f.Kind() == protoreflect.MessageKind:
			m = m.Mutable(f).List().AppendMutable().Message()
		case f.IsList():
			m.Mutable(f).List().Append(v)
		case f.Kind() == protoreflect.MessageKind:
			m = m.Mutable(f).Message()
		case last:
			m.Set(f, v)
		}
	}
	return findValue(w.message.through(in.Interface()).ProtoReflect(), path)
}

// findValue returns the value at a path; in a list it uses the last element.
func findValue(m protoreflect.Message, path []protoreflect.FieldDescriptor) (protoreflect.Value, bool) {
	v := protoreflect.ValueOfMessage(m)
	for _, f := range path {
		if !v.Message().Has(f) {
			return protoreflect.Value{}, false
		}
		v = v.Message().Get(f)
		if f.IsList() {
			v = v.List().Get(v.List().Len() - 1)
		}
	}
	return v, true
}

// testValues returns the values to which a field is set: one value, or all non-zero values of an enumeration.
func testValues(f protoreflect.FieldDescriptor) []protoreflect.Value {
	if f.Name() == "apparmor_profile" {
		var all []protoreflect.Value
		for _, s := range []string{"runtime/default", "unconfined", "localhost/profile"} {
			all = append(all, protoreflect.ValueOfString(s))
		}
		return all
	}
	switch f.Kind() {
	case protoreflect.EnumKind:
		var all []protoreflect.Value
		for i := range f.Enum().Values().Len() {
			if n := f.Enum().Values().Get(i).Number(); n != 0 {
				all = append(all, protoreflect.ValueOfEnum(n))
			}
		}
		return all
	case protoreflect.BoolKind:
		return []protoreflect.Value{protoreflect.ValueOfBool(true)}
	case protoreflect.StringKind:
		return []protoreflect.Value{protoreflect.ValueOfString("text")}
	case protoreflect.BytesKind:
		return []protoreflect.Value{protoreflect.ValueOfBytes([]byte("\xff\x00text"))}
	case protoreflect.Int32Kind:
		return []protoreflect.Value{protoreflect.ValueOfInt32(7)}
	case protoreflect.Int64Kind:
		return []protoreflect.Value{protoreflect.ValueOfInt64(7)}
	case protoreflect.Uint32Kind:
		return []protoreflect.Value{protoreflect.ValueOfUint32(7)}
	case protoreflect.Uint64Kind:
		return []protoreflect.Value{protoreflect.ValueOfUint64(7)}
	case protoreflect.DoubleKind:
		return []protoreflect.Value{protoreflect.ValueOfFloat64(7)}
	case protoreflect.MessageKind:
		if f.IsMap() {
			return testValues(f.MapValue())
		}
		return []protoreflect.Value{{}}
	default:
		panic("no value for a field of kind " + f.Kind().String())
	}
}
