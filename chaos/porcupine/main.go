// Judges histories of one key by Porcupine, an implementation of the search for linearizability that shares
// nothing with ours, against a model of a fenced lease that is written down here a second time.
//
// Reads one history a line from standard input, as tenure_chaos.checkers.generated writes them, and prints one
// character for each: 1 if it is linearizable, 0 if it is not, ? if no verdict was found in time.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/anishathalye/porcupine"
)

const patience = 20 * time.Second

// operation is one call. Returned is null if the caller never learnt the outcome: then it may have had its
// effect at any time after the call, or none. How is empty if it is known to have had none.
type operation struct {
	Kind        string  `json:"kind"`
	Token       int64   `json:"token"`
	Value       *string `json:"value"`
	RequireLive bool    `json:"require_live"`
	Mode        string  `json:"mode"`
	Seq         int64   `json:"seq"`
	How         string  `json:"how"`
	GotToken    int64   `json:"got_token"`
	GotValue    string  `json:"got_value"`
	Invoked     int64   `json:"invoked"`
	Returned    *int64  `json:"returned"`
}

// lease is all that there is to know of one key. A holder or token of 0 is none.
type lease struct {
	holder    int64
	floor     int64
	writer    int64
	record    string
	lastToken int64
	lastSeq   int64
}

func (l lease) ended() lease {
	l.holder = 0
	return l
}

// after lists what the key may be like once the operation has been answered as it was. The lease may end by
// itself at any moment, so also right before.
func after(l lease, op operation) []lease {
	if op.How == "" {
		return []lease{l}
	}
	next := answered(l, op)
	if l.holder != 0 {
		next = append(next, answered(l.ended(), op)...)
	}
	if op.Returned == nil {
		next = append(next, l)
	}
	return next
}

func answered(l lease, op operation) []lease {
	same, never := []lease{l}, []lease{}
	only := func(possible bool) []lease {
		if possible {
			return same
		}
		return never
	}
	mine := l.holder == op.Token

	switch op.Kind {
	case "acquire":
		switch op.How {
		case "granted":
			if l.holder != 0 || op.GotToken <= l.floor {
				return never
			}
			l.holder, l.floor = op.GotToken, op.GotToken
			return []lease{l}
		case "again":
			return only(l.holder == op.GotToken)
		case "held":
			return only(op.GotToken == 0 || op.GotToken == l.holder)
		}
	case "renew":
		return only(mine == (op.How == "renewed"))
	case "release":
		if op.How == "released" && mine {
			return []lease{l.ended()}
		}
		return only(op.How != "released" && !mine)
	case "commit":
		return committed(l, op, only)
	case "break":
		if op.GotToken != l.holder {
			return never
		}
		broken := l.ended()
		broken.floor++
		if op.GotToken == 0 {
			return []lease{l, broken}
		}
		return []lease{broken}
	case "get":
		return only(l.holder == op.GotToken)
	case "record":
		return only(l.writer == op.GotToken && l.record == op.GotValue)
	case "delete":
		if l.writer == 0 && l.record == "" {
			return never
		}
		l.writer, l.record = 0, ""
		return []lease{l}
	}
	return same
}

func committed(l lease, op operation, only func(bool) []lease) []lease {
	mine := l.holder == op.Token
	replayed := op.Token < l.lastToken || op.Token == l.lastToken && op.Seq <= l.lastSeq

	switch op.How {
	case "accepted":
		switch {
		case op.Token < l.floor,
			op.RequireLive && !mine,
			op.Mode == "once" && op.Token <= l.lastToken,
			op.Mode == "sequence" && replayed:
			return only(false)
		}
		if op.Value != nil {
			l.writer, l.record = op.Token, *op.Value
		}
		l.lastToken, l.lastSeq = op.Token, op.Seq
		return []lease{l}
	case "stale_token":
		return only(op.Token < l.floor || l.floor == 0)
	case "not_live":
		return only(!mine)
	case "token_used":
		return only(op.Token <= l.lastToken)
	case "seq_replayed":
		return only(replayed)
	}
	return only(true)
}

var model = (&porcupine.NondeterministicModel{
	Init: func() []interface{} { return []interface{}{lease{}} },
	Step: func(state, input, output interface{}) []interface{} {
		var states []interface{}
		for _, next := range after(state.(lease), input.(operation)) {
			states = append(states, next)
		}
		return states
	},
}).ToModel()

func judge(operations []operation) porcupine.CheckResult {
	history := make([]porcupine.Operation, len(operations))
	for n, op := range operations {
		returned := int64(math.MaxInt64)
		if op.Returned != nil {
			returned = *op.Returned
		}
		history[n] = porcupine.Operation{ClientId: n, Input: op, Call: op.Invoked, Output: nil, Return: returned}
	}
	return porcupine.CheckOperationsTimeout(model, history, patience)
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	for lines.Scan() {
		var operations []operation
		if err := json.Unmarshal(lines.Bytes(), &operations); err != nil {
			fmt.Fprintln(os.Stderr, "not a history:", err)
			os.Exit(1)
		}
		verdict := map[porcupine.CheckResult]string{porcupine.Ok: "1", porcupine.Illegal: "0"}[judge(operations)]
		if verdict == "" {
			verdict = "?"
		}
		out.WriteString(verdict)
	}
	if err := lines.Err(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	out.WriteString("\n")
}
