// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volumetest_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/seed81659283/nodeagent/internal/podtest"
	"github.com/seed81659283/nodeagent/internal/suite/suitetest"
	"github.com/seed81659283/nodeagent/volume"
	"github.com/seed81659283/nodeagent/volume/intree"
	"github.com/seed81659283/nodeagent/volume/volumetest"
)

// mutantVariable is the environment variable with the mutant that TestMutant tests.
const mutantVariable = "VOLUMETEST_MUTANT"

// emptyDir returns the plugin from which mutants are made: a directory, which needs no root.
func emptyDir() volume.Plugin { return intree.Plugins(intree.Options{})[volume.EmptyDir] }

// mutants are plugins that violate one rule each.
var mutants = map[string]struct {
	test   string // the case that detects the violation
	broken string // words of the violated sentence
	plugin func() volume.Plugin
}{
	"empties the volume": {"SetUpTwice", "keeps all that is correct", func() volume.Plugin {
		return &volumetest.FaultyPlugin{Plugin: emptyDir(), SetUpFault: func(ctx context.Context, v volume.Volume) error {
			return emptyDir().TearDown(ctx, v)
		}}
	}},
	"resets permissions": {"SetUpTwice", "keeps all that is correct", func() volume.Plugin {
		return &volumetest.FaultyPlugin{Plugin: emptyDir(), AfterSetUp: func(v volume.Volume, err error) error {
			return errors.Join(err, os.Chmod(v.Dir, 0o777))
		}}
	}},
	"keeps the directory": {"TearDownByRecord", "TearDown removes a volume", func() volume.Plugin {
		return &volumetest.FaultyPlugin{Plugin: emptyDir(), TearDownFault: func(context.Context, volume.Volume) error { return errStop }}
	}},
	"needs the pod spec": {"TearDownByRecord", "TearDown removes a volume", func() volume.Plugin {
		return &volumetest.FaultyPlugin{Plugin: emptyDir(), TearDownFault: func(_ context.Context, v volume.Volume) error {
			if v.Pod == nil {
				return errors.New("which pod?")
			}
			return nil
		}}
	}},
	"fails for an absent volume": {"TearDownAbsent", "An absent volume is no error", func() volume.Plugin {
		return &volumetest.FaultyPlugin{Plugin: emptyDir(), TearDownFault: func(_ context.Context, v volume.Volume) error {
			_, err := os.Lstat(v.Dir)
			return err
		}}
	}},
	"fails for a partial volume": {"TearDownPartial", "TearDown follows", func() volume.Plugin {
		return &volumetest.FaultyPlugin{Plugin: emptyDir(), TearDownFault: func(_ context.Context, v volume.Volume) error {
			if _, err := os.Lstat(filepath.Join(v.Dir, "half")); err == nil {
				return errors.New("not ready")
			}
			return nil
		}}
	}},
	"returns another error when canceled": {"Canceled", "the error of ctx", func() volume.Plugin {
		return &volumetest.FaultyPlugin{Plugin: emptyDir(), SetUpFault: func(ctx context.Context, _ volume.Volume) error {
			if ctx.Err() != nil {
				return errors.New("it did not work")
			}
			return nil
		}}
	}},
}

// errStop prevents a call of the plugin.
var errStop = errors.New("stop")

func newSubject(plugin volume.Plugin) func(t *testing.T) volumetest.Subject {
	return func(t *testing.T) volumetest.Subject {
		return volumetest.Subject{Plugin: plugin, Name: volume.EmptyDir, Pod: podtest.Pod(t, "volumes: [{name: v}]")}
	}
}

func TestEmptyDirPassesSuite(t *testing.T) { volumetest.TestPlugin(t, newSubject(emptyDir())) }

// TestMutant runs the suite on one mutant, in a process of its own.
func TestMutant(t *testing.T) {
	name := os.Getenv(mutantVariable)
	if name == "" {
		t.Skip("TestSuiteFindsFaults runs this test")
	}
	volumetest.TestPlugin(t, newSubject(mutants[name].plugin()))
}

func TestSuiteFindsFaults(t *testing.T) {
	for name, m := range mutants {
		t.Run(name, func(t *testing.T) { suitetest.FindsFault(t, mutantVariable, name, m.test, m.broken) })
	}
}

func TestRulesAreDocumented(t *testing.T) {
	suitetest.Documented(t, "suite.go", "../*.go", 8)
}
