"""From the text of a compiled module to the ops behind its instructions."""

from __future__ import annotations

from xttsbench.step.hlo_names import op_names

MODULE = """
HloModule a_inference_step, is_scheduled=true
%fused (param_0: f32[8]) -> f32[8] {
  %param_0 = f32[8]{0} parameter(0)
  ROOT %tanh.1 = f32[8]{0} tanh(%param_0), metadata={op_type="Tanh" op_name="Tanh"}
}
ENTRY %main {
  %arg0.1 = f32[8]{0} parameter(0), metadata={op_name="XLA_Args"}
  %MatMul_1.6 = f32[8,8]{1,0} dot(%a, %b), lhs={1}, metadata={op_type="MatMul" op_name="gradient_tape/matmul/MatMul_1" source_line=3}
  %copy.2 = f32[8]{0} copy(%arg0.1)
  ROOT %wrapped_tanh = f32[8]{0} fusion(%arg0.1), calls=%fused, metadata={op_type="Tanh" op_name="scope/Tanh"}
}
"""  # noqa: E501


def test_instructions_lead_to_ops() -> None:
    found = op_names(MODULE)
    assert found["MatMul_1.6"] == ("gradient_tape/matmul/MatMul_1", "MatMul")
    assert found["wrapped_tanh"] == ("scope/Tanh", "Tanh"), "a fusion is named after its root"
    assert found["tanh.1"] == ("Tanh", "Tanh")
    assert found["arg0.1"] == ("XLA_Args", "")


def test_what_has_no_metadata_is_left_out() -> None:
    assert "copy.2" not in op_names(MODULE)
    assert op_names("") == {}
