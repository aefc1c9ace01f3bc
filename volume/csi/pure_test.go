// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package csi

import (
	"strings"
	"testing"

	spec "github.com/container-storage-interface/spec/lib/go/csi"
	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
)

func TestAccessModeOfDriverWithAndWithoutMultiWriter(t *testing.T) {
	for mode, want := range map[corev1.PersistentVolumeAccessMode][2]spec.VolumeCapability_AccessMode_Mode{
		corev1.ReadWriteOnce:    {spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, spec.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER},
		corev1.ReadWriteOncePod: {spec.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, spec.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER},
		corev1.ReadOnlyMany:     {spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY, spec.VolumeCapability_AccessMode_MULTI_NODE_READER_ONLY},
		corev1.ReadWriteMany:    {spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER, spec.VolumeCapability_AccessMode_MULTI_NODE_MULTI_WRITER},
		"Other":                 {},
	} {
		assert.Equal(t, want[0], accessMode(mode, false), mode)
		assert.Equal(t, want[1], accessMode(mode, true), mode)
	}
}

func TestNeedsFSGroupByPolicy(t *testing.T) {
	group := int64(1)
	writable := volumeSpec{fsType: "ext4", singleNodeWriter: true}
	for name, c := range map[string]struct {
		policy storagev1.FSGroupPolicy
		change func(s *volumeSpec, group **int64)
		want   bool
	}{
		"default":              {"", nil, true},
		"no group":             {"", func(_ *volumeSpec, g **int64) { *g = nil }, false},
		"read-only":            {storagev1.FileFSGroupPolicy, func(s *volumeSpec, _ **int64) { s.readOnly = true }, false},
		"no type":              {"", func(s *volumeSpec, _ **int64) { s.fsType = "" }, false},
		"no type, policy File": {storagev1.FileFSGroupPolicy, func(s *volumeSpec, _ **int64) { s.fsType = "" }, true},
		"many writers":         {"", func(s *volumeSpec, _ **int64) { s.singleNodeWriter = false }, false},
		"policy None":          {storagev1.NoneFSGroupPolicy, nil, false},
	} {
		s, g := writable, &group
		if c.change != nil {
			c.change(&s, &g)
		}
		d := &storagev1.CSIDriver{}
		if c.policy != "" {
			d.Spec.FSGroupPolicy = &c.policy
		}
		o := policyOf(d)
		assert.Equal(t, c.want, o.needsFSGroup(&s, g), name)
		if c.policy == "" {
			o = policyOf(nil)
			assert.Equal(t, c.want, o.needsFSGroup(&s, g), "without CSIDriver object: "+name)
		}
	}
}

func TestCheckDriverRefusesInvalidNames(t *testing.T) {
	for _, good := range []string{"a", "csi.example", "EBS.csi.AWS.com", strings.Repeat("x", 63)} {
		assert.NoError(t, checkDriver(good), good)
	}
	for _, bad := range []string{"", ".", "..", "a/b", "../x", "a b", "a\x00", "-a", "a.", strings.Repeat("x", 64)} {
		assert.Error(t, checkDriver(bad), bad)
	}
}

// vol_data.json may have any contents.
func FuzzParseData(f *testing.F) {
	f.Add([]byte(`{"driverName":"csi.example","volumeHandle":"x"}`))
	f.Add([]byte(`{"driverName":"../x","volumeHandle":"x"}`))
	f.Add([]byte(`[{}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		data, err := parseData(text)
		o := data.owner
		if err == nil && (checkDriver(o.driver) != nil || o.handle == "" || strings.ContainsAny(o.driver, "/\x00")) {
			t.Fatalf("%q is parsed as %+v", text, o)
		}
	})
}
