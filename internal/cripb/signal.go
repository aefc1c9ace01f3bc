// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cripb

import (
	"fmt"
	"strings"

	v1 "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/seed81659283/nodeagent/cri"
)

// signalPrefix is the prefix of signal names in the protocol.
const signalPrefix = "SIGNAL_"

// EncodeSignal returns the CRI number of a signal. An unknown signal is an error. An empty signal means the default of the
// runtime.
func EncodeSignal(signal cri.Signal) (v1.Signal, error) {
	if signal == "" {
		return v1.Signal_SIGNAL_RUNTIME_DEFAULT, nil
	}
	name := string(signal)
	if rest, ok := strings.CutPrefix(name, "SIGRTMIN+"); ok {
		name = "SIGRTMINPLUS" + rest
	} else if rest, ok := strings.CutPrefix(name, "SIGRTMAX-"); ok {
		name = "SIGRTMAXMINUS" + rest
	}
	n, ok := v1.Signal_value[signalPrefix+name]
	if !ok || DecodeSignal(v1.Signal(n)) != signal {
		return 0, fmt.Errorf("stop signal %q: unknown", string(signal))
	}
	return v1.Signal(n), nil
}

// DecodeSignal returns the name of the signal with this CRI number. It returns "" for the default of the runtime and for an
// unknown number.
func DecodeSignal(number v1.Signal) cri.Signal {
	name, ok := v1.Signal_name[int32(number)]
	if !ok || number == v1.Signal_SIGNAL_RUNTIME_DEFAULT {
		return ""
	}
	name = strings.TrimPrefix(name, signalPrefix)
	if rest, ok := strings.CutPrefix(name, "SIGRTMINPLUS"); ok {
		name = "SIGRTMIN+" + rest
	} else if rest, ok := strings.CutPrefix(name, "SIGRTMAXMINUS"); ok {
		name = "SIGRTMAX-" + rest
	}
	return cri.Signal(name)
}
