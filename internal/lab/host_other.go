// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package lab

import (
	"errors"
	"os"
	"syscall"
)

func unsupportedReason() string { return "a lab needs Linux" }

func newSession() *syscall.SysProcAttr { return nil }

func processStart(int) (uint64, bool) { return 0, false }

func reapProcess(int) {}

func findProcesses(string, string) []process { return nil }

func tryLock(*os.File, bool) error { return errors.ErrUnsupported }

func mountsBelow(string) ([]string, error) { return nil, errors.ErrUnsupported }

func unmountLazily(string) error { return errors.ErrUnsupported }

func pickSnapshotter(string) (string, error) { return "", errors.ErrUnsupported }

func mayLowerOOMScore() (bool, error) { return false, errors.ErrUnsupported }
